"""The index that the list of runs is answered from: whole on SQLite, in its order on PostgreSQL."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement

FREE_TEXT = ("tags", "search")


class ListIndex(models.Index):
    """Covers every column of the list; on PostgreSQL all but free text, since an index row has at most 2,704 bytes."""

    def create_sql(
        self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor, using: str = "", **kwargs: Any
    ) -> Statement:
        """As the database can keep it."""
        if schema_editor.connection.vendor != "postgresql":
            return super().create_sql(model, schema_editor, using, **kwargs)
        fields = [name for name in self.fields if name not in FREE_TEXT]
        return models.Index(fields=fields, name=self.name).create_sql(model, schema_editor, using, **kwargs)
