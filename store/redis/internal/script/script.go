// Package script has the Lua scripts of the Redis store.
package script

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names a script by its SHA-1
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/rueidis"
)

var (
	//go:embed lua/common.lua
	luaCommon string
	//go:embed lua/layout.lua
	luaLayout string
	//go:embed lua/bucket.lua
	luaBucket string
	//go:embed lua/slots.lua
	luaSlots string
	//go:embed lua/write.lua
	luaWrite string
	//go:embed lua/prepare.lua
	luaPrepare string
	//go:embed lua/record.lua
	luaRecord string
	//go:embed lua/take.lua
	luaTake string
	//go:embed lua/adjust.lua
	luaAdjust string
	//go:embed lua/settle.lua
	luaSettle string
	//go:embed lua/peek.lua
	luaPeek string
	//go:embed lua/buckets.lua
	luaBuckets string
	//go:embed lua/credit.lua
	luaCredit string
	//go:embed lua/forget.lua
	luaForget string
	//go:embed lua/commit.lua
	luaCommit string
	//go:embed lua/get.lua
	luaGet string
	//go:embed lua/list.lua
	luaList string
	//go:embed lua/epochs.lua
	luaEpochs string
	//go:embed lua/open.lua
	luaOpen string
)

// First lines of scripts. With either, a replica refuses all scripts, including those that only read. Scripts that
// begin with frees run even when memory has run out.
const (
	writes = "#!lua\n"
	frees  = "#!lua flags=allow-oom\n"
)

// seldom returns a Lua function of that name, which returns a table with functions of the parts. It creates them when
// they are first needed: creating all of them costs more than a decision.
func seldom(name, functions string, parts ...string) string {
	function := "function " + name + "()\nif made then return made end\n" + strings.Join(parts, "") +
		"made = {" + functions + "}\nreturn made\nend\n"
	return "local " + name + "\ndo\nlocal made\n" + function + "end\n"
}

// The scripts of buckets and of the catalog. Each is described at its beginning.
var (
	Take = newScript(writes, luaCommon, luaLayout,
		seldom("special", "within = within, covered = covered, whole = whole, unread = unread, write = write, "+
			"held = held, lasts = lasts, seize = seize, slow = slow", luaWrite, luaSlots,
			seldom("slow", "create = create, prepare = prepare", luaBucket, luaPrepare)), luaTake)
	Settle = newScript(writes, luaCommon, luaLayout, luaWrite, luaSlots,
		seldom("slow", "adjust = adjust", luaBucket, luaAdjust), luaSettle)
	Peek    = newScript(frees, luaCommon, luaLayout, luaWrite, luaSlots, luaBucket, luaPeek)
	Buckets = newScript(frees, luaCommon, luaLayout, luaWrite, luaSlots, luaBucket, luaBuckets)
	Credit  = OnBuckets(luaCredit)
	Forget  = newScript(frees, luaCommon, luaLayout, luaWrite, luaSlots, luaBucket, luaForget)
	Credits = newScript(frees, "return redis.call('UNLINK', KEYS[1])") // forgets them
	Commit  = newScript(writes, luaCommon, luaRecord, luaCommit)
	Get     = newScript(frees, luaCommon, luaRecord, luaGet)
	List    = newScript(frees, luaCommon, luaRecord, luaList)
	Epochs  = newScript(frees, luaEpochs)
	Open    = newScript(writes, luaOpen)
)

// Script is a Lua script. Once it has run, the server keeps it under the hash of its text.
type Script struct{ text, hash string }

func newScript(shebang string, parts ...string) *Script {
	text := shebang + strings.Join(parts, "")
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &Script{text, hex.EncodeToString(sum[:])}
}

// OnBuckets returns a script with the functions that those of buckets share.
func OnBuckets(body string) *Script {
	return newScript(writes, luaCommon, luaLayout, luaWrite, luaSlots, luaBucket, body)
}

// Run runs a script, and sends its text if the server does not have it, in which case nothing has been done yet.
func (s *Script) Run(ctx context.Context, c rueidis.Client, keys, args []string) rueidis.RedisResult {
	r := c.Do(ctx, c.B().Evalsha().Sha1(s.hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	if e, ok := rueidis.IsRedisErr(r.Error()); ok && e.IsNoScript() {
		r = c.Do(ctx, c.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	return r
}
