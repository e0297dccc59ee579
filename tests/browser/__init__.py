"""Tests in real Chromium. A package, so that its console and browser end with its last test."""
