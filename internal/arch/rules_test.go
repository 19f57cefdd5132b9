package arch_test

import "slices"

// rule says what the packages of a room may link. Exactly one of only and never decides; with neither, the standard
// library alone.
type rule struct {
	room    string   // a pattern, as of the graph
	only    []string // all that it may link beside the standard library
	never   []string // what it must not link
	except  []string // packages of the room that are free to
	direct  bool     // what it imports itself counts, not what that links
	why     string
	catches string // something that it must not link
}

// Groups of packages that several rules name. x/sync is allowed wherever the standard library is.
var (
	core      = []string{"store", "internal/bucket", "internal/usage", "internal/catalogcache", "internal/breaker", "golang.org/x/sync/..."}
	embedded  = []string{"store", "internal/bucket", "internal/usage", "internal/catalog", "internal/table", "golang.org/x/sync/..."}
	remote    = []string{"store", "internal/bucket", "internal/coalesce", "golang.org/x/sync/...", "golang.org/x/sys/..."}
	durable   = []string{"store/disk", "store/dynamodb", "store/redis"}
	byName    = []string{"text/template", "html/template", "net/rpc", "github.com/google/go-cmp/..."}
	testOnly  = []string{"pgregory.net/rapid/...", "github.com/anishathalye/porcupine/...", "github.com/google/go-cmp/...", "go.uber.org/goleak/...", "github.com/rogpeppe/go-internal/...", "github.com/alicebob/miniredis/...", "store/storetest", "internal/faultproxy", "internal/dynamotest"}
	standard  = []string{"text/template", "testing"}
	awsModule = []string{"github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/..."}
)

// planned rooms of the architecture have no package yet.
var planned = []string{
	"httplimit", "weirtest", "store/redis", "internal/breaker",
}

var rules = []rule{
	{
		room: "store", catches: "internal/bucket",
		why: "the seam is what everything else stands on",
	},
	{
		room: "internal/bucket", catches: "golang.org/x/sync/errgroup",
		why: "the arithmetic is pure",
	},
	{
		room: "internal/catalogcache", only: []string{"store", "golang.org/x/sync/..."}, catches: ".",
		why: "the root links it",
	},
	{
		room: "internal/breaker", only: []string{"golang.org/x/sync/..."}, catches: "store/memory",
		why: "the root links it",
	},
	{
		room: "internal/coalesce", only: []string{"store", "internal/bucket", "golang.org/x/sync/..."}, catches: "store/redis",
		why: "drivers stand on it",
	},
	{
		room: "internal/catalog", only: []string{"store"}, catches: "go.etcd.io/bbolt",
		why: "memory and disk share it",
	},
	{
		room: "internal/usage", only: []string{"store", "internal/bucket"}, catches: "go.etcd.io/bbolt",
		why: "the fold is pure, and the stream reader links it, too",
	},
	{
		room: "internal/table", only: []string{"store", "internal/bucket", "internal/usage"}, catches: "store/memory",
		why: "memory and disk share it",
	},
	{
		room: ".", only: core, catches: "store/memory",
		why: "a user of the library links the standard library and the store of their choice",
	},
	{
		room: "httplimit", only: slices.Concat(core, []string{"."}), catches: "github.com/spf13/cobra",
		why: "as the root",
	},
	{
		room: "weirtest", only: slices.Concat(core, embedded, []string{".", "store/memory"}), catches: "pgregory.net/rapid",
		why: "it is linked into users' tests",
	},
	{
		room: "store/memory", only: embedded, catches: "store/disk",
		why: "drivers know neither the root nor each other",
	},
	{
		room: "store/disk", only: slices.Concat(embedded, []string{"go.etcd.io/bbolt/...", "golang.org/x/sys/..."}), catches: "store/memory",
		why: "drivers know neither the root nor each other",
	},
	{
		room: "store/redis", only: slices.Concat(remote, []string{"github.com/redis/rueidis/..."}), catches: ".",
		why: "drivers know neither the root nor each other",
	},
	{
		room: "store/dynamodb", only: slices.Concat(remote, awsModule), catches: "store/redis",
		why: "drivers know neither the root nor each other",
	},
	{
		room: "store/...", never: []string{".", "internal/cli"}, catches: ".",
		why: "the arrows point at the seam",
	},
	{
		room: "store/storetest", never: append([]string{"store/memory"}, durable...), catches: "store/disk",
		why: "the suite knows no driver",
	},
	{
		room: "governor", only: slices.Concat(awsModule, []string{"internal/bucket", "governor/fleet"}), catches: "store",
		why: "it is of use without weir",
	},
	{
		room: "governor/fleet", catches: "github.com/aws/smithy-go",
		why: "a fleet can share other things than DynamoDB",
	},
	{
		room: "governor/s3coord", only: slices.Concat(awsModule, []string{"governor/fleet", "golang.org/x/sync/..."}), catches: "governor",
		why: "only who coordinates in S3 links its client",
	},
	{
		room: "governor/storecoord", only: []string{"store", "governor/fleet"}, catches: "governor",
		why: "only who coordinates in a store links the seam",
	},
	{
		room: "governor", never: []string{"github.com/aws/aws-sdk-go-v2/service/s3/..."}, catches: "github.com/aws/aws-sdk-go-v2/service/s3",
		why: "only who coordinates in S3 links its client",
	},
	{
		room: "...", never: durable, catches: "store/disk", direct: true,
		except: []string{"internal/cli", "cmd/weir-lambda"},
		why:    "internal/cli/open.go knows every driver; others are handed a store",
	},
	{
		room: "cmd/weir", only: []string{"internal/cli"}, catches: ".", direct: true,
		why: "main is 15 lines",
	},
	{
		room: "...", never: []string{"internal/cli"}, catches: "internal/cli",
		except: []string{"cmd/weir"},
		why:    "the command is the outermost room",
	},
	{
		room: "...", never: byName, catches: "text/template", direct: true,
		why: "calls methods by name: the linker then prunes none, of any type",
	},
	{
		room: "...", never: testOnly, catches: "github.com/anishathalye/porcupine",
		except: []string{"store/storetest", "internal/faultproxy"},
		why:    "test code stays out of users' binaries",
	},
	{
		room: "...", never: []string{"testing"}, catches: "testing", direct: true,
		except: []string{"store/storetest", "weirtest", "internal/assert", "internal/faultproxy", "internal/dynamotest"},
		why:    "it registers flags in the binary",
	},
}
