#!/bin/sh
# Runs the benchmarks of a git reference and of the working tree in alternation, so that other load on the machine affects
# both alike, and compares them: bench-compare.sh REF BENCH-REGEXP PACKAGES
set -eu
ref=${1:?which reference? make bench-compare REF=main}
bench=${2:-.}
packages=${3:-./...}
go=${GO:-go}
rounds=${ROUNDS:-6}

scratch=$(mktemp -d)
cleanup() {
	git worktree remove --force "$scratch/old" 2>/dev/null || true
	rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

git worktree add --quiet --detach "$scratch/old" "$ref"
round=1
while [ "$round" -le "$rounds" ]; do
	echo "round $round of $rounds" >&2
	# shellcheck disable=SC2086 # several packages
	"$go" -C "$scratch/old" test -run '^$' -bench "$bench" -benchmem $packages >>"$scratch/old.txt"
	# shellcheck disable=SC2086
	"$go" test -run '^$' -bench "$bench" -benchmem $packages >>"$scratch/new.txt"
	round=$((round + 1))
done
.bin/benchstat "old=$scratch/old.txt" "new=$scratch/new.txt"
