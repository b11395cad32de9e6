package rule

//go:generate go test . -run ^TestSchemaIsCurrent$ -count 1 -rewrite

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// The schema of a rule file. The tags name the keys, for the decoder and for the JSON Schema alike, and the comments on the
// fields are what an editor shows. A mapping's type embeds node, which says where it stands.

// node is where a mapping stands in its file.
type node struct{ at place }

func (n *node) stand(at place) { n.at = at }

// fileSpec is a rule file: the rules of one domain.
type fileSpec struct {
	node
	// The container of the rules, which a request names.
	Domain text `json:"domain" jsonschema:"required"`
	// Whose answers the file wants: native, or envoy for those of envoyproxy/ratelimit. Default: --default-profile.
	Profile profileName `json:"profile"`
	// What the limits of this domain take where they say nothing themselves.
	Defaults *defaultsSpec `json:"defaults"`
	// Entries that refuse a request before anything else, without a look at any bucket.
	Blocklist []*blockSpec `json:"blocklist"`
	// Entries that are derived from others before descriptors are matched, one after the other.
	Lookups []*lookupSpec `json:"lookups"`
	// The first level of descriptors.
	Descriptors []*descriptorSpec `json:"descriptors"`
}

// blockSpec is one entry of the blocklist. It has one of value, any_of, cidr, prefix and suffix.
type blockSpec struct {
	node
	// The entry's key.
	Key text `json:"key" jsonschema:"required"`
	// The value that is refused.
	Value text `json:"value"`
	// The values that are refused, each compared whole.
	AnyOf texts `json:"any_of"`
	// Addresses of these networks, or of one, are refused, however they are spelt: "203.0.113.0/24".
	CIDR texts `json:"cidr"`
	// Values that begin so are refused.
	Prefix text `json:"prefix"`
	// Values that end so are refused.
	Suffix text `json:"suffix"`
	// Why, for people: at most 256 bytes, handed back with the answer as dynamic metadata.
	Reason text `json:"reason"`

	match *valueMatch // made by validate
}

// lookupSpec derives an entry from another.
type lookupSpec struct {
	node
	// The key of the entry it derives from. Where no entry has it, nothing is derived.
	From text `json:"from" jsonschema:"required"`
	// The key of the derived entry, which stands before its source and takes the place of what has that key.
	To text `json:"to" jsonschema:"required"`
	// What is derived from values that are not listed. Left out: nothing.
	Default text `json:"default"`
	// What is derived from each value.
	Values textMap `json:"values"`
	// A file of comma-separated values in place of values, a value and what is derived from it in a line; its path is relative to that of this file.
	ValuesFile text `json:"values_file"`

	file  string            // the name of the values_file
	table map[string]string // made by validate
}

// defaultsSpec is the defaults of a domain's limits.
type defaultsSpec struct {
	node
	// How limits count. Default: token_bucket; in profile envoy fixed_window.
	Algorithm algorithmName `json:"algorithm"`
	// How limits decide while their store is away. Default: fail_open.
	OnBackendFailure failureMode `json:"on_backend_failure"`
	// The part of a limit's local share that it grants under local_strict, more than 0 and at most 1, to six decimals. Default: 0.1.
	LocalFraction fraction `json:"local_fraction"`
	// Whether callers may give hits back. Default: true.
	Refunds toggle `json:"refunds"`
}

// descriptorSpec is one node of the tree that a descriptor's entries walk down.
type descriptorSpec struct {
	node
	// The entry's key. With a * in it, a pattern of keys.
	Key text `json:"key" jsonschema:"required"`
	// The entry's value, or a pattern with * for any text. Left out: any value, a bucket each.
	Value valueText `json:"value"`
	// In place of value: any of these, each compared whole. Without share_threshold each has a bucket of its own, here and below.
	AnyOf texts `json:"any_of"`
	// In place of value: addresses of these networks, or of one, however they are spelt: "203.0.113.0/24".
	CIDR texts `json:"cidr"`
	// In place of value: values that begin so. The same as a value with a * at its end.
	Prefix text `json:"prefix"`
	// In place of value: values that end so. The same as a value with a * at its start.
	Suffix text `json:"suffix"`
	// In place of value: values that match this regular expression (RE2) from start to end.
	Regex text `json:"regex"`
	// The limit of descriptors that end here.
	RateLimit *limitSpec `json:"rate_limit"`
	// Several limits of descriptors that end here, evaluated together, in place of rate_limit.
	Limits []*limitSpec `json:"limits" jsonschema:"minItems=1,maxItems=32"`
	// The next level.
	Descriptors []*descriptorSpec `json:"descriptors"`
	// Count, but refuse nothing. It belongs to this node alone.
	ShadowMode toggle `json:"shadow_mode"`
	// Refuse only if all quota limits of the request, or of their group, are over.
	QuotaMode toggle `json:"quota_mode"`
	// The group of a quota_mode limit: the request is refused if all of one group are over.
	QuotaGroup limitName `json:"quota_group"`
	// Show the request's values of the whole path in metrics.
	DetailedMetric toggle `json:"detailed_metric"`
	// Show the request's value at this level in metrics.
	ValueToMetric toggle `json:"value_to_metric"`
	// One bucket for all values that match the pattern, instead of one each.
	ShareThreshold toggle `json:"share_threshold"`
	// Bring values that are IP addresses to one spelling, and to a prefix, before they choose a bucket.
	Normalize *normalizeSpec `json:"normalize"`
	// Anything to hand back with the answer, as dynamic metadata.
	Metadata metadata `json:"metadata"`
	// The key, of this node or of one above it, whose value keeps buckets together: all of one account in one slot of a Redis Cluster.
	Partition text `json:"partition"`

	Shards unsupported `json:"shards"`
	HotKey unsupported `json:"hot_key"`
	Lease  unsupported `json:"lease"`

	match *valueMatch // made by validate; nil: by value
}

// normalizeSpec says to what prefix addresses are cut.
type normalizeSpec struct {
	node
	// Bits kept of an IPv4 address, 1 to 32. Default: 32.
	IPv4 count `json:"ipv4" jsonschema:"minimum=1,maximum=32"`
	// Bits kept of an IPv6 address, 1 to 128. Default: 128; 64 is a customer's network.
	IPv6 count `json:"ipv6" jsonschema:"minimum=1,maximum=128"`
}

// limitSpec is one limit.
type limitSpec struct {
	node
	// The limit's name in answers, headers and metrics; the target of replaces.
	Name limitName `json:"name"`
	// How the limit counts.
	Algorithm algorithmName `json:"algorithm"`
	// Hits granted a period. 0 refuses everything.
	RequestsPerUnit count `json:"requests_per_unit"`
	// The period's unit: second, minute, hour, day, week, month or year.
	Unit unitName `json:"unit"`
	// The period is this many units, at most 10 years. Default: 1.
	UnitMultiplier count `json:"unit_multiplier" jsonschema:"minimum=1"`
	// Pass without a limit, without touching a store.
	Unlimited toggle `json:"unlimited"`
	// Most hits at one instant, for token_bucket and gcra; the queue's length for a leaky_bucket. Default: requests_per_unit.
	Burst count `json:"burst" jsonschema:"minimum=1"`
	// How far reports after the fact may overdraw. Default: 0.
	Debt count `json:"debt"`
	// Hold answers in a queue for at most this long instead of refusing, for leaky_bucket: "500ms".
	MaxDelay duration `json:"max_delay"`
	// Begin windows at midnight in this IANA time zone, for a fixed_window of a day, week, month or year: "Europe/Berlin".
	Calendar text `json:"calendar"`
	// Whether callers may give hits back. Default: that of defaults, else true.
	Refunds toggle `json:"refunds"`
	// How the limit decides while its store is away. Default: that of defaults, else fail_open.
	OnBackendFailure failureMode `json:"on_backend_failure"`
	// The part of the limit's local share that it grants under local_strict, more than 0 and at most 1, to six decimals. Default: that of defaults, else 0.1.
	LocalFraction fraction `json:"local_fraction"`
	// Where buckets live: shared by all instances, or in each node alone, which grants its part of the limit without asking anyone. Default: shared.
	Scope scopeName `json:"scope"`
	// Names of limits that this one takes the place of, where both apply to one request.
	Replaces []*replacesSpec `json:"replaces"`

	Lease  unsupported `json:"lease"`
	Shards unsupported `json:"shards"`
	HotKey unsupported `json:"hot_key"`

	bucket *bucket.Limit // made by validate
}

// replacesSpec names a limit to be replaced.
type replacesSpec struct {
	node
	// The name of a limit.
	Name text `json:"name" jsonschema:"required"`
}
