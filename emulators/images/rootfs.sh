#!/bin/sh
# A root file system for containerised nodes: Debian's minimal set, Python with its whole standard library, libatomic;
# and what neighbours run (emulators/interference.py): pbzip2, make and a small C compiler, 5 MB together.
#   usage: rootfs.sh SUITE MIRROR KEYRING FOLDER      (KEYRING may be empty; called by topologies.images)
set -eu
suite=$1 mirror=$2 keyring=$3 folder=$4
set -- --variant=minbase --include=python3,libatomic1,pbzip2,make,tcc
[ -z "$keyring" ] || set -- "$@" "--keyring=$keyring"
debootstrap "$@" "$suite" "$folder" "$mirror"
# What a node never reads: package lists and archives, manuals, translations.
rm -rf "$folder"/var/cache/apt/* "$folder"/var/lib/apt/lists/* "$folder"/usr/share/doc/* "$folder"/usr/share/man/* \
    "$folder"/usr/share/locale/* "$folder"/var/log/*
