package arch_test

import "slices"

// rule says which packages the packages of a room may link. Of only and never, exactly one applies; with neither, only
// the standard library is allowed.
type rule struct {
	room    string   // a pattern, as in matches
	only    []string // all that it may link besides the standard library
	never   []string // must not be linked
	except  []string // packages of the room that are exempt
	direct  bool     // the rule covers direct imports only
	why     string
	catches string // an example of a forbidden package
}

// Groups of packages that several rules use. x/sync is allowed wherever the standard library is.
var (
	core      = []string{"store", "internal/clock", "internal/usage", "internal/varint", "internal/catalogcache", "internal/breaker", "internal/backstop", "internal/meter", "internal/parts", "internal/policy/record", "golang.org/x/sync/..."}
	embedded  = []string{"store", "internal/clock", "internal/usage", "internal/varint", "store/internal/catalog", "store/internal/inmem", "golang.org/x/sync/..."}
	remote    = []string{"store", "internal/clock", "internal/batch", "internal/coalesce", "internal/usage", "internal/varint", "store/internal/cursor", "golang.org/x/sync/...", "golang.org/x/sys/..."}
	durable   = []string{"store/disk", "store/dynamodb", "store/redis"}
	byName    = []string{"text/template", "html/template", "net/rpc", "github.com/google/go-cmp/..."}
	testOnly  = []string{"pgregory.net/rapid/...", "github.com/google/go-cmp/...", "go.uber.org/goleak/...", "github.com/rogpeppe/go-internal/...", "github.com/alicebob/miniredis/...", "store/storetest", "internal/testkit/faultproxy", "internal/testkit/dynamotest", "internal/testkit/porttest", "internal/testkit/redistest", "internal/testkit/mototest", "internal/testkit/cloudtest"}
	standard  = []string{"text/template", "testing"}
	limiters  = slices.Concat(core, []string{".", "internal/answer/ratelimitheaders", "internal/answer/middleware"})
	grpcTypes = []string{"google.golang.org/grpc/...", "google.golang.org/protobuf/...", "google.golang.org/genproto/googleapis/rpc/...", "golang.org/x/net/...", "golang.org/x/sys/...", "golang.org/x/text/..."}
	awsModule = []string{"github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/..."}
)

// planned rooms of the architecture have no package yet.
var planned = []string{}

var rules = []rule{
	{
		room: "store", catches: "internal/clock",
		why: "the seam is what everything else stands on",
	},
	{
		room: "internal/clock", catches: "golang.org/x/sync/errgroup",
		why: "the arithmetic is pure",
	},
	{
		room: "internal/varint", catches: "store",
		why: "bytes are all that it knows",
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
		room: "internal/backstop", only: []string{"store", "internal/clock"}, catches: ".",
		why: "the root links it",
	},
	{
		room: "internal/policy/record", only: []string{"store", "internal/clock"}, catches: ".",
		why: "the root links it",
	},
	{
		room: "internal/meter", only: []string{"store", "internal/clock"}, catches: ".",
		why: "the root links it",
	},
	{
		room: "internal/parts", only: []string{"store", "internal/clock", "internal/policy/record"}, catches: ".",
		why: "the root links it",
	},
	{
		room: "internal/fleet/instances", only: []string{"store", "internal/fleet", "internal/fleet/catalog"}, catches: ".",
		why: "it needs a catalog, and nothing else",
	},
	{
		room: "internal/batch", catches: "store",
		why: "drivers stand on it",
	},
	{
		room: "internal/coalesce", only: []string{"store", "internal/clock", "golang.org/x/sync/..."}, catches: "store/redis",
		why: "drivers stand on it",
	},
	{
		room: "store/internal/catalog", only: []string{"store"}, catches: "go.etcd.io/bbolt",
		why: "memory and disk share it",
	},
	{
		room: "internal/usage", only: []string{"store", "internal/clock", "internal/varint"}, catches: "go.etcd.io/bbolt",
		why: "the fold is pure, and the stream reader links it, too",
	},
	{
		room: "store/internal/inmem", only: []string{"store", "internal/clock", "internal/usage", "internal/varint"}, catches: "store/memory",
		why: "memory and disk share it",
	},
	{
		room: ".", only: core, catches: "store/memory",
		why: "a user of the library links the standard library and the store of their choice",
	},
	{
		room: "internal/answer/ratelimitheaders", only: slices.Concat(core, []string{"."}), catches: "internal/serve/httpapi",
		why: "httplimit links it",
	},
	{
		room: "internal/answer/problemjson", only: slices.Concat(core, []string{"."}), catches: "internal/serve/httpapi",
		why: "httplimit links it",
	},
	{
		room: "internal/answer/middleware", only: slices.Concat(core, []string{".", "internal/answer/ratelimitheaders"}), catches: "google.golang.org/grpc",
		why: "httplimit links it",
	},
	{
		room: "httplimit", only: slices.Concat(limiters, []string{"internal/answer/problemjson"}), catches: "google.golang.org/grpc",
		why: "a user of the middleware links what a user of the library does",
	},
	{
		room: "grpclimit", only: slices.Concat(limiters, grpcTypes), catches: "github.com/spf13/cobra",
		why: "its users link gRPC already, and nothing else",
	},
	{
		room: "internal/serve/admission", catches: "internal/serve/auth",
		why: "it counts, and knows nobody but by name",
	},
	{
		room: "internal/serve/watch", only: slices.Concat(core, []string{".", "internal/serve/admission"}), catches: "internal/serve/httpapi",
		why: "HTTP and gRPC share it",
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
		room: "store/dynamodb", only: slices.Concat(remote, awsModule, []string{"store/dynamodb/internal/table"}), catches: "store/redis",
		why: "drivers know neither the root nor each other",
	},
	{
		room: "store/dynamodb/internal/table", only: slices.Concat(remote, awsModule), never: []string{"internal/coalesce"}, catches: "internal/coalesce",
		why: "it makes calls and keeps records, and knows nothing of buckets",
	},
	{
		room: "store/...", never: []string{".", "internal/cli/..."}, catches: ".",
		why: "the arrows point at the seam",
	},
	{
		room: "store/storetest", never: append([]string{"store/memory"}, durable...), catches: "store/disk",
		why: "the suite knows no driver",
	},
	{
		room: "governor", only: slices.Concat(awsModule, []string{"internal/clock", "internal/fleet"}), catches: "store",
		why: "it is of use without weir",
	},
	{
		room: "internal/fleet", catches: "github.com/aws/smithy-go",
		why: "a fleet can share other things than DynamoDB",
	},
	{
		room: "governor/s3coord", only: slices.Concat(awsModule, []string{"internal/fleet", "golang.org/x/sync/..."}), catches: "governor",
		why: "only who coordinates in S3 links its client",
	},
	{
		room: "governor", never: []string{"github.com/aws/aws-sdk-go-v2/service/s3/..."}, catches: "github.com/aws/aws-sdk-go-v2/service/s3",
		why: "only who coordinates in S3 links its client",
	},
	{
		room: "internal/aws/deploy", never: []string{".", "internal/cli/...", "internal/aws/lambdapkg", "internal/serve/httpapi", "store/disk", "store/redis"}, catches: "internal/aws/lambdapkg",
		why: "it brings a description to AWS, and is handed the functions' package",
	},
	{
		room: "internal/aws/cloud", catches: "github.com/aws/aws-sdk-go-v2/aws",
		why: "a template is text: what makes it asks AWS nothing",
	},
	{
		room: "internal/aws/archive/...", never: append([]string{"internal/cli/...", "internal/manifest", "internal/serve/httpapi"}, durable...), catches: "store/dynamodb",
		why: "an archive knows events, and is told where in a table they are",
	},
	{
		room: "internal/aws/lambdafn", never: append([]string{"internal/cli/...", "internal/serve/httpapi", "internal/aws/archive", "github.com/aws/aws-sdk-go-v2/..."}, durable...), catches: "github.com/aws/aws-sdk-go-v2/aws",
		why: "it is handed a limiter; and a function's package has room for ten megabytes",
	},
	{
		room: "internal/aws/lambdapkg", catches: ".",
		why: "the package is bytes: what they do is for another program to know",
	},
	{
		room: "internal/serve/web", catches: ".",
		why: "the dashboard is files: what it knows of weir it asks over HTTP",
	},
	{
		room: "internal/serve/metrics", never: append([]string{"internal/serve/httpapi", "internal/serve/grpcapi", "internal/cli/..."}, durable...), catches: "internal/serve/httpapi",
		why: "who answers requests is told to count by who starts it",
	},
	{
		room: "...", never: []string{"go.opentelemetry.io/...", "github.com/prometheus/..."}, catches: "go.opentelemetry.io/otel", direct: true,
		except: []string{"internal/serve/metrics"},
		why:    "one room knows them; others have an observer, or count nothing",
	},
	{
		room: "api/...", only: append([]string{"github.com/planetscale/vtprotobuf/..."}, grpcTypes...), catches: ".",
		why: "a client links the API, gRPC and the helpers of generated code, and nothing else",
	},
	{
		room: "internal/serve/grpcapi", never: []string{"internal/serve/httpapi", "internal/manifest", "internal/serve/metrics", "internal/serve/envoy", "internal/serve/web"}, catches: "internal/serve/httpapi",
		why: "HTTP and gRPC stand side by side, and what they share beneath; what else is served is registered",
	},
	{
		room: "internal/serve/envoy", never: []string{"internal/serve/httpapi", "internal/serve/grpcapi", "internal/serve/auth", "internal/serve/metrics", "internal/cli/..."}, catches: "internal/serve/grpcapi",
		why: "it is registered with gRPC by who starts both, and told who may",
	},
	{
		room: "...", never: []string{"github.com/envoyproxy/..."}, catches: "github.com/envoyproxy/go-control-plane", direct: true,
		except: []string{"internal/serve/envoy"},
		why:    "one room speaks Envoy's language",
	},
	{
		room: "internal/fleet/cells", only: slices.Concat(core, []string{".", "internal/fleet"}), catches: "internal/serve/httpapi",
		why: "it is handed the stores and the limiter, and told by metrics",
	},
	{
		room: "internal/fleet/configflow", only: slices.Concat(core, []string{"."}), catches: "store/memory",
		why: "it is handed the stores and the limiter, and told by whatever transport there is",
	},
	{
		room: "internal/fleet/configflow/snssqs", never: durable, catches: "store/dynamodb",
		why: "a cell's queue knows no table",
	},
	{
		room:    "internal/serve/decide",
		never:   []string{"internal/serve/httpapi", "internal/serve/grpcapi", "internal/serve/envoy", "internal/serve/metrics", "google.golang.org/..."},
		catches: "internal/serve/httpapi",
		why:     "HTTP and gRPC share it: it knows no protocol",
	},
	{
		room: "internal/serve/leaseid", only: slices.Concat(core, []string{"."}), catches: "internal/serve/httpapi",
		why: "HTTP and gRPC share it",
	},
	{
		room: "...", never: durable, catches: "store/disk", direct: true,
		except: []string{"internal/cli/stores", "cmd/weir-lambda", "internal/aws/aggregate", "internal/aws/deploy"},
		why:    "internal/cli/stores knows every driver; others are handed a store",
	},
	{
		room: "internal/aws/aggregate", never: []string{".", "internal/cli/...", "internal/serve/httpapi", "store/disk", "store/redis"}, catches: ".",
		why: "what reads the stream knows the table, and nothing that decides",
	},
	{
		room: "internal/lab/cost", catches: ".",
		why: "it is arithmetic; what it reckons with, tests of the drivers prove",
	},
	{
		room: "internal/lab/whatif", only: slices.Concat(core, []string{"."}), catches: "internal/lab/replay",
		why: "it is handed usage, and asks no store",
	},
	{
		room: "internal/lab/simulate", only: slices.Concat(core, []string{".", "internal/backstop"}), catches: "store/dynamodb",
		why: "the model knows no driver: a test holds it against one",
	},
	{
		room: "store/storetest/reckon", only: []string{"store", "github.com/anishathalye/porcupine/..."}, catches: "internal/clock",
		why: "what drivers are held to shares no arithmetic with them",
	},
	{
		room: "internal/lab/torture", never: append([]string{"internal/cli/..."}, durable...), catches: "store/redis",
		why: "it is handed a store, and told what kind it is",
	},
	{
		room: "...", never: []string{"github.com/anishathalye/porcupine/..."}, catches: "github.com/anishathalye/porcupine", direct: true,
		except: []string{"internal/lab/torture", "store/storetest/reckon", "store/storetest"},
		why:    "weir torture and the drivers' tests look for an order; nobody else links it",
	},
	{
		room: "internal/lab/load", never: append([]string{"internal/cli/...", "internal/serve/httpapi", "internal/serve/grpcapi", "internal/serve/metrics", "store/memory"}, durable...), catches: "internal/serve/httpapi",
		why: "it stands where a client does, and is handed the store",
	},
	{
		room: "cmd/weir", only: []string{"internal/cli"}, catches: ".", direct: true,
		why: "main is 15 lines",
	},
	{
		room: "...", never: []string{"internal/cli/..."}, catches: "internal/cli/kit",
		except: []string{"cmd/weir", "internal/cli/..."},
		why:    "the command is the outermost room",
	},
	{
		room: "...", never: byName, catches: "text/template", direct: true,
		why: "calls methods by name: the linker then prunes none, of any type",
	},
	{
		room: "...", never: testOnly, catches: "pgregory.net/rapid",
		except: []string{"store/storetest", "internal/testkit/faultproxy", "internal/testkit/dynamotest", "internal/testkit/mototest", "internal/testkit/redistest"},
		why:    "test code stays out of users' binaries",
	},
	{
		room: "...", never: []string{"testing"}, catches: "testing", direct: true,
		except: []string{"store/storetest", "weirtest", "internal/assert", "internal/testkit/faultproxy", "internal/testkit/dynamotest", "internal/testkit/porttest", "internal/testkit/redistest", "internal/testkit/mototest", "internal/testkit/cloudtest"},
		why:    "it registers flags in the binary",
	},
}
