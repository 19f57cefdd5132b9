package script

import _ "embed"

var (
	//go:embed lua/usage_meter.lua
	luaUsageMeter string
	//go:embed lua/usage_read.lua
	luaUsageRead string
	//go:embed lua/usage_left.lua
	luaUsageLeft string
	//go:embed lua/usage_accounts.lua
	luaUsageAccounts string
	//go:embed lua/usage_book.lua
	luaUsageBook string
	//go:embed lua/usage_sweep.lua
	luaUsageSweep string
	//go:embed lua/usage_list.lua
	luaUsageList string
	//go:embed lua/usage_forget.lua
	luaUsageForget string
	//go:embed lua/usage_lease.lua
	luaUsageLease string
	//go:embed lua/usage_names.lua
	luaUsageNames string
	//go:embed lua/usage_passed.lua
	luaUsagePassed string
)

// The scripts of usage. Usage is the first to stop when memory runs out, but scripts that free memory always run.
var (
	Meter       = newScript(writes, luaCommon, luaUsageMeter)
	ReadUsage   = newScript(frees, luaCommon, luaLayout, luaUsageRead)
	Left        = newScript(frees, luaUsageLeft)
	Accounts    = newScript(frees, luaUsageAccounts)
	Book        = newScript(writes, luaCommon, luaUsageBook)
	Sweep       = newScript(frees, luaCommon, luaUsageSweep)
	ListUsage   = newScript(frees, luaCommon, luaUsageList)
	ForgetUsage = newScript(frees, luaCommon, luaUsageForget)
	Lease       = newScript(writes, luaUsageLease)
	Names       = newScript(writes, luaCommon, luaUsageNames)
	Passed      = newScript(writes, luaUsagePassed)
	Discard     = newScript(frees, "for i = 1, #ARGV do redis.call('LREM', KEYS[1], 1, ARGV[i]) end return 0")
	Kept        = newScript(frees, "return redis.call('EXISTS', KEYS[1])")
	Last        = newScript(frees, "return redis.call('GET', KEYS[1]) or ''")
	Begun       = newScript(frees, "return redis.call('SREM', KEYS[1], ARGV[1])")
)
