package redis

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
	//go:embed lua/bucket.lua
	luaBucket string
	//go:embed lua/write.lua
	luaWrite string
	//go:embed lua/prepare.lua
	luaPrepare string
	//go:embed lua/record.lua
	luaRecord string
	//go:embed lua/take.lua
	luaTake string
	//go:embed lua/settle.lua
	luaSettle string
	//go:embed lua/peek.lua
	luaPeek string
	//go:embed lua/buckets.lua
	luaBuckets string
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

// seldom creates the functions of buckets only when they are needed: creating all of them costs as much as a decision.
var seldom = "local made\nlocal function slow()\nif made then return made end\n" + luaBucket + luaPrepare +
	"made = {head = head, prepare = prepare}\nreturn made\nend\n"

var (
	takeScript    = newScript(writes, luaCommon, luaWrite, seldom, luaTake)
	settleScript  = newScript(writes, luaCommon, luaWrite, luaBucket, luaSettle)
	peekScript    = newScript(frees, luaCommon, luaWrite, luaBucket, luaPeek)
	bucketsScript = newScript(frees, luaCommon, luaWrite, luaBucket, luaBuckets)
	forgetScript  = newScript(frees, luaCommon, luaForget)
	commitScript  = newScript(writes, luaCommon, luaRecord, luaCommit)
	getScript     = newScript(frees, luaCommon, luaRecord, luaGet)
	listScript    = newScript(frees, luaCommon, luaRecord, luaList)
	epochsScript  = newScript(frees, luaEpochs)
	openScript    = newScript(writes, luaOpen)
)

// script is a Lua script. Once it has run, the server keeps it under the hash of its text.
type script struct{ text, hash string }

func newScript(shebang string, parts ...string) *script {
	text := shebang + strings.Join(parts, "")
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text, hex.EncodeToString(sum[:])}
}

// run runs a script, and sends its text if the server does not have it, in which case nothing has been done yet.
func (s *script) run(ctx context.Context, c rueidis.Client, keys, args []string) rueidis.RedisResult {
	r := c.Do(ctx, c.B().Evalsha().Sha1(s.hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	if e, ok := rueidis.IsRedisErr(r.Error()); ok && e.IsNoScript() {
		r = c.Do(ctx, c.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	return r
}
