package internal_test

// The house: its rooms, the edges between them and what it takes from outside, each with its reason. The tests beside
// this file hold the source to these lists in both directions: what is not listed fails, and so does what is listed
// and no longer there. A new row is a decision and is reviewed as one.

const modulePath = "github.com/ratelimitd/ratelimitd"

// A room is one package of ours: what it hides from the others, and which of ours it may import. Imports only go down.
type room struct {
	hides    string
	imports  map[string]string // package → reason
	forTests bool              // only tests import it, and it may import what tests may
}

var rooms = map[string]room{
	"internal/bucket": {hides: "the arithmetic of limits"},
	"internal/bucket/script": {hides: "the language of testdata/*.txt: what a bucket answers over time", forTests: true, imports: map[string]string{
		"internal/bucket": "it makes limits and states",
	}},
	"internal/store": {hides: "nothing but names: the contract of taking charges", imports: map[string]string{
		"internal/bucket": "a charge is made on a limit",
	}},
	"internal/store/memstore": {hides: "buckets in this process: shards, eviction, memory", imports: map[string]string{
		"internal/bucket": "it keeps bucket states",
		"internal/store":  "it implements the contract",
	}},
	"internal/clienttls": {hides: "how a client's side of TLS is made of files: whom it trusts, and what it shows"},
	"internal/redisconn": {hides: "how Redis is reached: URLs, Sentinels, TLS, credentials that change", imports: map[string]string{
		"internal/clienttls": "Redis may speak TLS",
	}},
	"internal/store/redisstore": {hides: "Redis: the script, its encoding, pipelining, shards and slots, errors", imports: map[string]string{
		"internal/bucket":    "it sends limits to the script, whose parts lie beside the arithmetic",
		"internal/redisconn": "it connects to each node",
		"internal/store":     "it implements the contract",
	}},
	"internal/store/storetest": {hides: "what every store must pass", forTests: true, imports: map[string]string{
		"internal/bucket": "it makes limits",
		"internal/store":  "it drives the contract",
	}},
	"internal/servertls": {hides: "the certificate that a port shows and the callers it admits, read again when rotated"},
	"internal/certtest":  {hides: "how certificates are made for a test", forTests: true},
	"internal/redistest": {hides: "how a real redis-server is started for a test", forTests: true},
	"internal/ledger": {hides: "where settings that people change are kept, each change with its entry in the audit log", imports: map[string]string{
		"internal/redisconn": "it tells a Redis that refuses from one that is away",
	}},
	"internal/rule": {hides: "the schema of rules, its compiler and the matcher", imports: map[string]string{
		"internal/bucket": "a rule compiles to limits",
	}},
	"internal/override": {hides: "what operators decide on top of the rules: whom an override meets, and how long it is in force", imports: map[string]string{
		"internal/bucket": "an override gives a limit other numbers",
		"internal/ledger": "overrides are settings that people change",
		"internal/rule":   "entries of a descriptor, and the addresses they may be",
	}},
	"internal/engine": {hides: "one decision: match, plan, take, verdict", imports: map[string]string{
		"internal/bucket":   "a verdict tells a limit's numbers",
		"internal/override": "operators' overrides take the place of limits",
		"internal/rule":     "descriptors are matched to rules",
		"internal/store":    "charges are taken",
	}},
	"internal/engine/shorthand": {hides: "the one-line form of requests and answers that tests and explain share", imports: map[string]string{
		"internal/bucket": "units of an override",
		"internal/engine": "it reads requests and writes verdicts",
		"internal/rule":   "entries of a descriptor",
	}},
	"internal/limiter": {hides: "where a charge is paid: the store behind its breaker, a denial remembered, or the fallback", imports: map[string]string{
		"internal/bucket": "it derives local shares of limits",
		"internal/store":  "it is a store over a store",
	}},
	"internal/cases": {hides: "how unit tests of limits run on a virtual clock", imports: map[string]string{
		"internal/bucket":           "times and waits of a case",
		"internal/engine":           "a case is decided as a request is",
		"internal/engine/shorthand": "requests and answers of a case",
		"internal/rule":             "the rules under test",
		"internal/store":            "the keyer and the store handed to the engine",
		"internal/store/memstore":   "buckets of a case",
	}},
	"internal/config": {hides: "where the current snapshot comes from", imports: map[string]string{
		"internal/ledger": "published rules are settings that people change",
		"internal/rule":   "it loads and swaps snapshots",
	}},
	"internal/config/xds": {hides: "the protocol of control planes: streams, nonces, ACK and NACK, proto types", imports: map[string]string{
		"internal/clienttls": "a control plane may speak TLS",
		"internal/config":    "it is one of its sources",
		"internal/rule":      "a resource becomes the text of a rule file",
	}},
	"internal/xdstest": {hides: "how a control plane is run for a test", forTests: true},
	"internal/transport": {hides: "the wire: proto types, gRPC, JSON, headers", imports: map[string]string{
		"internal/bucket": "units and Never in answers",
		"internal/engine": "it asks for verdicts",
		"internal/rule":   "entries of a request, the rules that /rlconfig prints",
		"internal/store":  "the origin of a decision in metadata",
	}},
	"api/proto/ratelimitd/v1": {hides: "nothing: messages generated from admin.proto"},
	"api/proto/ratelimitd/v1/ratelimitdv1connect": {hides: "nothing: client and handler generated from admin.proto", imports: map[string]string{
		"api/proto/ratelimitd/v1": "messages of the calls",
	}},
	"internal/admin": {hides: "what people do to a deployment, and who may: the service of the admin port", imports: map[string]string{
		"api/proto/ratelimitd/v1":                     "messages of the calls",
		"api/proto/ratelimitd/v1/ratelimitdv1connect": "it implements the handler",
		"internal/config":                             "it publishes rules, and tells which are current",
		"internal/engine":                             "it explains requests, and gives hits back",
		"internal/engine/shorthand":                   "requests in one line",
		"internal/ledger":                             "it lists and verifies the audit log",
		"internal/override":                           "it sets and removes overrides",
		"internal/rule":                               "files and mistakes of rules",
	}},
	"internal/app": {hides: "the process: options, wiring, lifecycle, telemetry", imports: map[string]string{
		"internal/admin":            "it serves the admin port",
		"internal/ledger":           "it opens the ledger",
		"internal/override":         "it keeps the overrides that the engine applies",
		"internal/config":           "it starts the source of rules",
		"internal/config/xds":       "which may be a control plane",
		"internal/engine":           "it builds the engine",
		"internal/limiter":          "it puts the limiter over Redis and the fallback",
		"internal/redisconn":        "how Redis is reached is an option",
		"internal/rule":             "the default profile",
		"internal/store":            "the keyer and the store handed to the engine",
		"internal/store/memstore":   "the embedded store, and the fallback's",
		"internal/store/redisstore": "the shared store",
		"internal/servertls":        "the certificate of the gRPC port",
		"internal/transport":        "it serves the ports",
	}},
	"internal/capacity":    {hides: "arithmetic on paper: nodes, shards, limits, what a bucket does to random requests"},
	"internal/bench":       {hides: "how load is made and measured: a cheap client, moments, latencies, CPU of other processes"},
	"internal/bench/floor": {hides: "what decisions are measured against: gRPC as it comes, and a constant answer"},
	"internal/bench/suite": {hides: "make bench: servers started, loaded in turn, and what came of it as tables and curves", imports: map[string]string{
		"internal/bench":            "it loads servers",
		"internal/bench/floor":      "it serves the floor in a process of its own",
		"internal/bucket":           "the limit that Redis alone is asked for",
		"internal/engine":           "it counts what a decision allocates",
		"internal/rule":             "it counts what a match allocates",
		"internal/store":            "a charge of that limit, and a key",
		"internal/store/memstore":   "the store of that decision",
		"internal/store/redisstore": "the command that takes it",
		"internal/transport":        "gRPC alone is set up as ours",
	}},
	"cmd/ratelimitd": {hides: "flags, environment and exit codes", imports: map[string]string{
		"api/proto/ratelimitd/v1":                     "messages of the admin service",
		"api/proto/ratelimitd/v1/ratelimitdv1connect": "rules, override, grant, audit and nodes call the admin service",
		"internal/clienttls":                          "call and the commands of the admin port may speak TLS, and serve's control plane",
		"internal/ledger":                             "audit verify checks a file",
		"internal/app":                                "serve is app.Run",
		"internal/bench":                              "bench loads a server",
		"internal/bucket":                             "check prints algorithms and units",
		"internal/capacity":                           "size reckons",
		"internal/cases":                              "test runs cases",
		"internal/config":                             "check and explain read the same files as serve",
		"internal/config/xds":                         "serve may take its rules from a control plane",
		"internal/engine":                             "explain and test decide in this process",
		"internal/engine/shorthand":                   "requests on the command line and in test cases",
		"internal/override":                           "explain knows what operators decided",
		"internal/redisconn":                          "flags say how Redis is reached",
		"internal/rule":                               "check prints rules and warnings",
		"internal/store":                              "key prints a bucket's key",
		"internal/store/memstore":                     "test runs its cases on a virtual clock",
		"internal/store/redisstore":                   "key and explain look at the buckets in Redis",
		"internal/servertls":                          "serve's certificate",
		"internal/transport":                          "which headers to send",
	}},
	"e2e": {hides: "nothing: tests through a real Envoy"},
}

// testImports are what tests of any package may import as well.
var testImports = map[string]string{
	"internal/redisconn":                          "what uses Redis is tested on all its topologies",
	"api/proto/ratelimitd/v1":                     "the admin service is called as its clients call it",
	"api/proto/ratelimitd/v1/ratelimitdv1connect": "the admin service is called as its clients call it",
	"internal/bucket/script":                      "every twin of the arithmetic passes the same scripts",
	"internal/redistest":                          "what uses Redis is tested on a real one",
	"internal/xdstest":                            "what follows a control plane is tested on a real one",
	"internal/certtest":                           "what speaks TLS is tested with certificates of its own",
	"internal/store/storetest":                    "every store passes it",
	"internal/store/memstore":                     "decisions are tested on a real store",
	"internal/store/redisstore":                   "decisions are tested on a real store",
	"internal/engine/shorthand":                   "cases are written in one line",
	"internal/bucket":                             "tests make limits",
	"internal/rule":                               "tests compile rules",
	"internal/store":                              "tests make charges",
}

// A dependency is one direct requirement of go.mod: why it is there, and which packages may import it; "*" is any.
// Tests may import any of them.
type dependency struct {
	why      string
	in       []string
	testOnly bool
}

var dependencies = map[string]dependency{
	"connectrpc.com/connect": {
		why: "one handler for gRPC and JSON over HTTP on one port, and their client", in: []string{
			"api/proto/ratelimitd/v1/ratelimitdv1connect", "internal/admin", "cmd/ratelimitd",
		},
	},
	"github.com/HdrHistogram/hdrhistogram-go": {
		why: "latencies from microseconds to a minute, at three digits", in: []string{"internal/bench"},
	},
	"github.com/KimMachineGun/automemlimit": {
		why: "the memory limit of the container as Go's soft limit", in: []string{"cmd/ratelimitd"},
	},
	"github.com/anishathalye/porcupine": {
		why: "whether a history of calls is explained by single steps", in: []string{"internal/store/redisstore"}, testOnly: true,
	},
	"github.com/cespare/xxhash/v2": {
		why: "a hash of a request that is the same on every instance, for the spread of Retry-After", in: []string{"internal/transport"},
	},
	"github.com/dunglas/httpsfv": {
		why: "whether the RateLimit headers are structured fields", in: []string{"internal/transport"}, testOnly: true,
	},
	"github.com/envoyproxy/go-control-plane": {
		why: "a control plane as Envoy Gateway runs it", in: []string{"internal/xdstest"}, testOnly: true,
	},
	"github.com/envoyproxy/go-control-plane/ratelimit": {
		why: "the proto of rules over xDS; later than v0.1.0, which lacks quota_mode, metadata and three units", in: []string{"internal/config/xds", "internal/xdstest"},
	},
	"github.com/envoyproxy/go-control-plane/envoy": {
		why: "Envoy's protos, never declared again", in: []string{"internal/transport", "internal/config/xds", "internal/xdstest", "cmd/ratelimitd", "internal/bench/floor", "internal/bench/suite"},
	},
	"github.com/gaissmai/bart": {
		why: "the longest network of an address, among any number of them", in: []string{"internal/rule"},
	},
	"github.com/fsnotify/fsnotify": {
		why: "the system's events of changed files, on every system", in: []string{"internal/config", "internal/servertls"},
	},
	"github.com/google/go-cmp": {
		why: "diffs of structs", in: []string{"*"}, testOnly: true,
	},
	"github.com/invopop/jsonschema": {
		why: "the rules' JSON Schema from their Go types", in: []string{"internal/rule"},
	},
	"github.com/prometheus/client_golang": {
		why: "metrics, through the registerer a package is given", in: []string{"*"},
	},
	"github.com/redis/go-redis/v9": {
		why: "the Redis client", in: []string{"internal/ledger", "internal/redisconn", "internal/store/redisstore", "internal/redistest", "internal/app"},
	},
	"github.com/rogpeppe/go-internal": {
		why: "testscript: the command line's behaviour as scripts", in: []string{"cmd/ratelimitd"}, testOnly: true,
	},
	"github.com/santhosh-tekuri/jsonschema/v6": {
		why: "an independent validator that must agree with the loader", in: []string{"internal/rule"}, testOnly: true,
	},
	"github.com/spf13/cobra": {
		why: "the command line", in: []string{"cmd/ratelimitd"},
	},
	"github.com/spf13/pflag": {
		why: "flags, whose values also come from environment and file", in: []string{"cmd/ratelimitd"},
	},
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc": {
		why: "server spans of gRPC calls", in: []string{"internal/app"},
	},
	"go.opentelemetry.io/otel": {
		why: "attributes and propagation of spans", in: []string{"internal/engine", "internal/store/redisstore", "internal/app"},
	},
	"go.opentelemetry.io/otel/trace": {
		why: "spans", in: []string{"internal/engine", "internal/store/redisstore", "internal/app"},
	},
	"go.opentelemetry.io/otel/sdk": {
		why: "the tracer provider", in: []string{"internal/app"},
	},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc": {
		why: "spans sent by OTLP over gRPC", in: []string{"internal/app"},
	},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": {
		why: "spans sent by OTLP over HTTP", in: []string{"internal/app"},
	},
	"go.opentelemetry.io/proto/otlp": {
		why: "a collector that tests send spans to", in: []string{"internal/app"}, testOnly: true,
	},
	"go.uber.org/goleak": {
		why: "no goroutine outlives its test", in: []string{"*"}, testOnly: true,
	},
	"go.yaml.in/yaml/v4": {
		why: "YAML with the line and column of each node", in: []string{"internal/rule", "internal/cases", "cmd/ratelimitd"},
	},
	"golang.org/x/net": {
		why: "a cap on a listener's connections; header compression of the load's client", in: []string{"internal/app", "internal/bench"},
	},
	"google.golang.org/grpc": {
		why: "the transport of Envoy's services", in: []string{"internal/transport", "internal/config/xds", "internal/xdstest", "internal/app", "cmd/ratelimitd", "internal/bench/floor"},
	},
	"github.com/Shopify/toxiproxy/v2": {
		why: "networks that are slow, cut or lossy, in make soak", in: []string{"internal/limiter"}, testOnly: true,
	},
	"github.com/rs/zerolog": {
		why: "toxiproxy wants its logger, to be silent", in: []string{"internal/limiter"}, testOnly: true,
	},
	"pgregory.net/rapid": {
		why: "properties that hold for drawn input", in: []string{"*"}, testOnly: true,
	},
	"google.golang.org/protobuf": {
		why: "protowire for our codec, protojson for /json, resources of a control plane", in: []string{"api/proto/ratelimitd/v1", "internal/admin", "internal/transport", "internal/config/xds", "internal/xdstest", "cmd/ratelimitd", "internal/bench/floor", "internal/bench/suite"},
	},
}

// emptyWords say nothing about what a package, file or type hides.
var emptyWords = []string{"util", "utils", "common", "helper", "helpers", "manager", "types", "base", "impl"}

// A ban is what the lists above must never come to allow. Packages and imports are path prefixes.
type ban struct {
	in     string
	except []string
	of     []string
	why    string
}

var bans = []ban{
	{in: "internal/bucket", except: []string{"internal/bucket/script"}, of: []string{"github.com/", "golang.org/", "google.golang.org/", "go."}, why: "the arithmetic needs the standard library only"},
	{in: "internal/bucket", except: []string{"internal/bucket/script"}, of: []string{"context", "log", "net", "os", "time/tzdata"}, why: "the arithmetic reads no context, logger or network"},
	{in: "internal/rule", of: []string{modulePath + "/internal/store"}, why: "rules know no store"},
	{in: "internal/limiter", of: []string{modulePath + "/internal/rule"}, why: "tiers know charges, not rules"},
	{in: "internal", of: []string{modulePath + "/pkg"}, why: "pkg wraps internal, never the other way"},
	{
		in: "internal", except: []string{"internal/transport", "internal/config/xds", "internal/xdstest", "internal/admin", "internal/app", "internal/bench/floor", "internal/bench/suite"},
		of: []string{"google.golang.org/protobuf", "google.golang.org/grpc", "github.com/envoyproxy"}, why: "proto types stop in transport",
	},
	{
		in: "internal", except: []string{"internal/ledger", "internal/redisconn", "internal/store/redisstore", "internal/redistest", "internal/config", "internal/app"},
		of: []string{"github.com/redis"}, why: "Redis types stop in redisstore",
	},
}
