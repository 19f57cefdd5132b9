package arch_test

// rule restricts what the packages of a room may link, beside floors. Of only and never, exactly one applies; with
// neither, a room links no other module.
type rule struct {
	room    string   // a pattern, as in matches
	only    []string // all that it may link of other modules
	never   []string // must not be linked, of this or other modules
	except  []string // packages of the room that are exempt
	direct  bool     // the rule covers direct imports only
	why     string
	catches string // an example of a forbidden package
}

// Groups of packages that several rules use.
var (
	sync      = "golang.org/x/sync/..."
	durable   = []string{"store/disk", "store/dynamodb", "store/redis"}
	byName    = []string{"text/template", "html/template", "net/rpc", "github.com/google/go-cmp/..."}
	testOnly  = []string{"pgregory.net/rapid/...", "github.com/google/go-cmp/...", "go.uber.org/goleak/...", "github.com/rogpeppe/go-internal/...", "github.com/alicebob/miniredis/...", "store/storetest", "store/storetest/interleave", "store/storetest/internal/...", kit}
	standard  = []string{"text/template", "testing"}
	grpcTypes = []string{sync, "google.golang.org/grpc/...", "google.golang.org/protobuf/...", "google.golang.org/genproto/googleapis/rpc/...", "golang.org/x/net/...", "golang.org/x/sys/...", "golang.org/x/text/..."}
	awsModule = []string{sync, "github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/...", "golang.org/x/sys/..."}
)

// What packages link of other modules.
var links = []rule{
	{room: "internal/clock/...", catches: sync, why: "the arithmetic is pure"},
	{room: "store", catches: sync, why: "the seam is what everything else stands on"},
	{room: "internal/batch/...", catches: "github.com/aws/aws-sdk-go-v2/service/dynamodb", why: "a plan is values: a simulation drives it, too"},
	{room: "internal/batch/plan", never: []string{"internal/batch", "store/internal/...", "store/dynamodb/..."}, catches: "internal/batch", why: "a plan is values: a simulation drives it, too"},
	{room: "store/internal/...", only: []string{sync}, catches: "go.etcd.io/bbolt", why: "memory and disk share it"},
	{room: "store/memory", only: []string{sync}, catches: "go.etcd.io/bbolt", why: "a user of a store links no other"},
	{room: "store/disk", only: []string{sync, "go.etcd.io/bbolt/...", "golang.org/x/sys/..."}, catches: "github.com/redis/rueidis", why: "a user of a store links no other"},
	{room: "store/redis", only: []string{sync, "github.com/redis/rueidis/...", "golang.org/x/sys/..."}, catches: "go.etcd.io/bbolt", why: "a user of a store links no other"},
	{room: "store/dynamodb/...", only: awsModule, catches: "github.com/redis/rueidis", why: "a user of a store links no other"},
	{room: ".", only: []string{sync}, catches: "google.golang.org/grpc", why: "a user of the library links the standard library and the store of their choice"},
	{room: "httplimit", only: []string{sync}, catches: "google.golang.org/grpc", why: "a user of the middleware links what a user of the library does"},
	{room: "grpclimit", only: grpcTypes, catches: "github.com/spf13/cobra", why: "its users link gRPC already, and nothing else"},
	{room: "weirtest", only: []string{sync}, catches: "pgregory.net/rapid", why: "it is linked into users' tests"},
	{room: "api/...", only: append([]string{"github.com/planetscale/vtprotobuf/..."}, grpcTypes...), catches: "github.com/spf13/cobra", why: "a client links the API and gRPC, and nothing else"},
	{room: "internal/fleet", catches: "github.com/aws/smithy-go", why: "a fleet can share other things than DynamoDB"},
	{room: "internal/fleet", never: []string{".", "store"}, catches: "store", why: "a fleet can meet elsewhere than in a store"},
	{room: "governor", only: awsModule, catches: "github.com/spf13/cobra", why: "it is of use without weir"},
	{room: "governor", never: []string{"store", "github.com/aws/aws-sdk-go-v2/service/s3/..."}, catches: "github.com/aws/aws-sdk-go-v2/service/s3", why: "only who coordinates in a store or in S3 links it"},
	{room: "internal/aws/stack", never: []string{"github.com/aws/..."}, catches: "github.com/aws/aws-sdk-go-v2/aws", why: "a template is text: what prints it calls nothing"},
	{room: "cmd/weir-lambda", never: []string{"github.com/go-json-experiment/...", "internal/api"}, catches: "internal/api", why: "a function's package has room for ten megabytes"},
	{room: "internal/aws/function", never: []string{"github.com/aws/aws-sdk-go-v2/..."}, catches: "github.com/aws/aws-sdk-go-v2/aws", why: "a function's package has room for ten megabytes"},
	{room: "internal/serve/web", never: []string{".", "store"}, catches: ".", why: "the dashboard is files, which call the HTTP API"},
	{room: "store/storetest/reckon", direct: true, never: []string{"internal/clock/...", "store/internal/varint"}, catches: "internal/clock", why: "what drivers are held to shares no arithmetic with them"},
}

// What only some packages may import.
var reserved = []rule{
	{
		room: "...", never: durable, direct: true, catches: "store/disk", why: "others are handed a store",
		except: []string{"internal/api/storeurl", "internal/cli/stores", "cmd/weir-lambda", "internal/aws/..."},
	},
	{
		room: "...", never: []string{"go.opentelemetry.io/...", "github.com/prometheus/..."}, direct: true, catches: "go.opentelemetry.io/otel", why: "others have an observer, or count nothing",
		except: []string{"internal/serve/metrics", "governor/metrics"},
	},
	{
		room: "...", never: []string{"github.com/envoyproxy/..."}, direct: true, catches: "github.com/envoyproxy/go-control-plane", why: "one package converts Envoy's messages",
		except: []string{"internal/serve/envoy"},
	},
	{
		room: "...", never: []string{"github.com/go-json-experiment/..."}, direct: true, catches: "github.com/go-json-experiment/json", why: "bodies need its strictness; what is stored is encoding/json's",
		except: []string{"internal/serve/httpapi", "internal/serve/dynamoproxy"},
	},
	{
		room: "...", never: []string{"github.com/anishathalye/porcupine/..."}, direct: true, catches: "github.com/anishathalye/porcupine", why: "weir torture and the drivers' tests look for an order; nobody else links it",
		except: []string{"internal/lab/torture", "store/storetest/..."},
	},
	{
		room: "...", never: []string{"internal/parts"}, direct: true, catches: "internal/parts", why: "it reaches into a limiter",
		except: []string{"admin", ".", "internal/fleet/...", "internal/serve/...", "internal/cli/...", "internal/lab/..."},
	},
	{room: "...", never: byName, direct: true, catches: "text/template", why: "calls methods by name: the linker then prunes none, of any type"},
	{
		room: "...", never: testOnly, catches: "pgregory.net/rapid", why: "test code stays out of users' binaries",
		except: []string{"store/storetest/...", kit},
	},
	{
		room: "...", never: []string{"testing"}, direct: true, catches: "testing", why: "it registers flags in the binary",
		except: []string{"store/storetest/...", "weirtest", kit},
	},
}
