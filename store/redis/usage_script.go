package redis

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

// Usage is the first to stop when memory runs out, but scripts that free memory always run.
var (
	meterScript       = newScript(writes, luaCommon, luaUsageMeter)
	readUsageScript   = newScript(frees, luaCommon, luaWrite, luaUsageRead)
	leftScript        = newScript(frees, luaUsageLeft)
	accountsScript    = newScript(frees, luaUsageAccounts)
	bookScript        = newScript(writes, luaCommon, luaUsageBook)
	sweepScript       = newScript(frees, luaCommon, luaUsageSweep)
	listUsageScript   = newScript(frees, luaCommon, luaUsageList)
	forgetUsageScript = newScript(frees, luaCommon, luaUsageForget)
	leaseScript       = newScript(writes, luaUsageLease)
	namesScript       = newScript(writes, luaCommon, luaUsageNames)
	passedScript      = newScript(writes, luaUsagePassed)
	discardScript     = newScript(frees, "for i = 1, #ARGV do redis.call('LREM', KEYS[1], 1, ARGV[i]) end return 0")
	keptScript        = newScript(frees, "return redis.call('EXISTS', KEYS[1])")
	begunScript       = newScript(frees, "return redis.call('SREM', KEYS[1], ARGV[1])")
)
