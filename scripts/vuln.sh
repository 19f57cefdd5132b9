#!/usr/bin/env bash
# Looks for known vulnerabilities in the modules in the given folders. GOVULNCHECK is the program, and VULNDB may name a
# copy of the database. If the database cannot be reached, that is printed, and no error: the code is not at fault.
set -uo pipefail
for module; do
	out=$("$GOVULNCHECK" -C "$module" ${VULNDB:+-db="$VULNDB"} ./... 2>&1)
	code=$?
	if ((code == 0)); then
		echo "vuln: module $module: no known vulnerability in the code that is used"
	elif [[ $out == *"fetching vulnerabilities"* ]]; then
		echo "vuln: NOT CHECKED, because the database of vulnerabilities cannot be reached: ${out##*$'\n'}"
		exit 0
	else
		echo "$out"
		exit "$code"
	fi
done
