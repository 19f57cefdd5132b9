#!/bin/sh
# Fuzzes each target of the module for the given time: fuzz.sh 30s
set -eu
time=${1:-30s}
# FILE:func FuzzNAME
targets=$(find . -name '*_test.go' -not -path './.*' -not -path '*/testdata/*' -not -path './bench/*' -not -path './e2e/*' \
	-exec grep -Eo '^func Fuzz[A-Za-z0-9_]+' /dev/null {} + || true)
if [ -z "$targets" ]; then
	echo "no fuzz targets found" >&2
	exit 1
fi
printf '%s\n' "$targets" | while IFS=: read -r file func; do
	target=${func#func }
	echo "$target in ${file%/*}"
	"${GO:-go}" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "${file%/*}" </dev/null
done
