#!/bin/sh
# Demonstrates weir: builds it, serves a new store, drives it over HTTP, and replays an access log. Needs Go and curl.
# LOG=FILE replays another log. The program and the store of the demo are left in the folder $BIN, by default .bin.
set -eu
case ${LOG:-} in
"") log=internal/lab/replay/testdata/access.log ;;
/*) log=$LOG ;;
*) log=$PWD/$LOG ;; # relative to the caller's directory
esac
cd "$(dirname "$0")/.."
log=${log#"$PWD/"}
if [ ! -r "$log" ]; then
	echo "LOG=$log cannot be read" >&2
	exit 2
fi
tags=grpcnotrace
bin=${BIN:-.bin}
data=$(mktemp -d)
server=
# Cleans up, also when interrupted: stops the server and removes its logs.
finish() {
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
		server=
	fi
	rm -rf "$data"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

title() { printf '\n# %s\n' "$1"; }
# run prints a command as it would be typed, and runs it.
run() {
	printf '$ weir %s\n' "$*"
	"$bin/weir" "$@"
}

echo "building $bin/weir"
CGO_ENABLED=0 "${GO:-go}" build -trimpath -tags "$tags" -o "$bin/weir" ./cmd/weir
rm -rf "$bin/demo"

# Neither use nor change the user's own configuration.
for name in $(env | sed -n 's/^\(WEIR_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
: >"$data/weir.yaml"
# A disk that is busy may take longer to answer than the server waits by default.
export WEIR_CONFIG="$data/weir.yaml" WEIR_STORE="disk:$bin/demo" WEIR_SERVE_DECIDE_WITHIN=1s

title "limits for everybody on gpt-4, and for a team that shares its own limits"
run resource set gpt-4 -l rpm:10/min -l tpm:5K/min
run entity create team-red
run entity limits set team-red -l rpm:12/min -l tpm:20K/min
run entity create key-alice --parent team-red --cascade
run entity create key-bob --parent team-red --cascade

title "a server on a free port"
echo '$ weir serve --http 127.0.0.1:0 --grpc off'
: >"$data/served" # it is read before the server has it
"$bin/weir" serve --http 127.0.0.1:0 --grpc off >"$data/served" 2>"$data/log" &
server=$!
address=
tries=0
while [ -z "$address" ]; do
	address=$(sed -n 's/.*\(http:[^ ]*\).*/\1/p' "$data/served")
	tries=$((tries + 1))
	if [ "$tries" -gt 100 ] || ! kill -0 "$server" 2>/dev/null; then
		cat "$data/log" >&2
		exit 1
	fi
	[ -n "$address" ] || sleep 0.1
done
echo "serving $address"

# call sends a request: STATUS METHOD PATH [BODY]. It fails if the answer has another status, and leaves it in $data/answer.
call() {
	got=$(curl -sS -m 10 -o "$data/answer" -w '%{http_code}' -X "$2" -H 'Content-Type: application/json' \
		${4:+-d "$4"} "$address$3")
	if [ "$got" != "$1" ]; then
		echo "$2 $3: status $got, want $1: $(cat "$data/answer")" >&2
		exit 1
	fi
}
# member prints a text of the last answer, or of a file.
member() { sed -n 's/.*"'"$1"'": *"\([^"]*\)".*/\1/p' "${2:-$data/answer}"; }
# burst sends N requests of an entity at once, and leaves the answers in $data/burst.*.
burst() {
	title "$2 requests of $1 at once, rpm=1 tpm=400 each"
	rm -f "$data"/burst.*
	pids=
	for i in $(seq "$2"); do
		curl -sS -m 10 -i -o "$data/burst.$i" -H 'Content-Type: application/json' "$address/v1/acquire" \
			-d '{"entity":"'"$1"'","resource":"gpt-4","tokens":{"rpm":1,"tpm":400}}' &
		pids="$pids $!"
	done
	for pid in $pids; do wait "$pid"; done
	other=$(grep -L -e '^HTTP/1.1 200' -e '^HTTP/1.1 429' "$data"/burst.* || true)
	if [ -n "$other" ]; then
		# shellcheck disable=SC2086 # the answers are words
		cat $other >&2
		exit 1
	fi
	admitted=$(grep -l '^HTTP/1.1 200' "$data"/burst.* | wc -l)
	printf '  admitted %d, refused %d\n' "$admitted" "$(($2 - admitted))"
	for refusal in $(grep -l '^HTTP/1.1 429' "$data"/burst.* | head -n 1); do
		printf '  429, %s\n  %s\n' "$(tr -d '\r' <"$refusal" | grep -i '^retry-after')" "$(member detail "$refusal")"
	done
}
left() { run watch key-alice gpt-4 --server "$address" --once; }

burst key-alice 25
leases=$(for f in $(grep -l '^HTTP/1.1 200' "$data"/burst.*); do member lease "$f"; done)
# shellcheck disable=SC2086 # the leases are words
set -- $leases
burst key-bob 5

title "one request used 700 tokens, not 400: adjust it"
left
call 200 POST "/v1/leases/$1/adjust" '{"tokens":{"tpm":300}}'
echo "  adjusted tpm +300"
call 204 POST "/v1/leases/$(member lease)/commit"
echo "  committed"
left

title "another request failed: roll it back"
call 204 POST "/v1/leases/$2/rollback"
echo "  rolled back rpm 1, tpm 400"
left
call 409 POST "/v1/leases/$2/rollback"
echo "  sent twice: 409, $(member detail)"

title "stop it: the store is written and closed, and can be inspected"
kill "$server"
wait "$server"
server=
run bucket list --resource gpt-4

title "what would 10 requests a minute have done to the clients in $log?"
run replay "$log" --limit rpm:10/min --entity client

cat <<END

# continue by hand, in the store of the demo
export WEIR_STORE=disk:$bin/demo
$bin/weir explain key-alice gpt-4 rpm=1    # the team is charged, too
$bin/weir system set -l rpm:5/min
$bin/weir acquire key-carol my-model rpm=3
$bin/weir acquire key-carol my-model rpm=3    # refused
$bin/weir explain key-carol my-model rpm=3    # why
$bin/weir wait key-carol my-model rpm=3
$bin/weir bucket list
$bin/weir replay $log --limit rpm:20/min:40 --entity client
$bin/weir serve --http 127.0.0.1:8080      # until Ctrl-C; in another terminal:
curl -H 'Content-Type: application/json' -d '{"entity":"key-alice","resource":"gpt-4","tokens":{"rpm":1}}' http://127.0.0.1:8080/v1/acquire
END
