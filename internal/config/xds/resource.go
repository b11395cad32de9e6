package xds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// typeURL is that of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// ruleFiles returns the resources of one response as rule files, named as they are.
func ruleFiles(resources []*anypb.Any) ([]rule.File, error) {
	files := make([]rule.File, len(resources))
	for i, r := range resources {
		if r.GetTypeUrl() != typeURL {
			return nil, fmt.Errorf("resource %d: type %q: want %q", i, r.GetTypeUrl(), typeURL)
		}
		// Fields of later versions are passed over, as protobuf does.
		c := new(ratelimitv3.RateLimitConfig)
		if err := r.UnmarshalTo(c); err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		data, err := ruleFile(c)
		if err != nil {
			return nil, fmt.Errorf("resource %d, %q: %w", i, c.GetName(), err)
		}
		files[i] = rule.File{Name: c.GetName(), Data: data}
	}
	return files, nil
}

// The schema of a rule file, as far as resources go. What a resource does not say is left out, since that is what the
// reference's own files mean by it.
type (
	configText struct {
		Domain      string           `json:"domain"`
		Descriptors []descriptorText `json:"descriptors,omitempty"`
	}
	descriptorText struct {
		Key            string           `json:"key"`
		Value          string           `json:"value,omitempty"`
		RateLimit      *limitText       `json:"rate_limit,omitempty"`
		ShadowMode     bool             `json:"shadow_mode,omitempty"`
		DetailedMetric bool             `json:"detailed_metric,omitempty"`
		QuotaMode      bool             `json:"quota_mode,omitempty"`
		Metadata       map[string]any   `json:"metadata,omitempty"`
		Descriptors    []descriptorText `json:"descriptors,omitempty"`
	}
	limitText struct {
		Name            string        `json:"name,omitempty"`
		Unit            string        `json:"unit,omitempty"`
		RequestsPerUnit *uint32       `json:"requests_per_unit,omitempty"`
		Unlimited       bool          `json:"unlimited,omitempty"`
		Replaces        []replaceText `json:"replaces,omitempty"`
	}
	replaceText struct {
		Name string `json:"name"`
	}
)

// ruleFile writes a resource as a rule file, one field a line, so that a mistake has a line of its own.
func ruleFile(c *ratelimitv3.RateLimitConfig) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(configText{Domain: c.GetDomain(), Descriptors: descriptors(c.GetDescriptors())}); err != nil {
		return nil, err
	}
	return escapeForYAML(b.Bytes()), nil
}

func descriptors(list []*ratelimitv3.RateLimitDescriptor) []descriptorText {
	out := make([]descriptorText, len(list))
	for i, d := range list {
		out[i] = descriptorText{
			Key: d.GetKey(), Value: d.GetValue(), RateLimit: limit(d.GetRateLimit()),
			ShadowMode: d.GetShadowMode(), DetailedMetric: d.GetDetailedMetric(), QuotaMode: d.GetQuotaMode(),
			Metadata: d.GetMetadata().AsMap(), Descriptors: descriptors(d.GetDescriptors()),
		}
	}
	return out
}

func limit(p *ratelimitv3.RateLimitPolicy) *limitText {
	if p == nil {
		return nil
	}
	l := &limitText{Name: p.GetName(), Unlimited: p.GetUnlimited()}
	// A unit is always there, and is UNKNOWN where none was meant; so is a number, which may mean 0.
	if u := p.GetUnit(); !l.Unlimited || u != ratelimitv3.RateLimitUnit_UNKNOWN {
		l.Unit = u.String()
	}
	if n := p.GetRequestsPerUnit(); !l.Unlimited || n != 0 {
		l.RequestsPerUnit = &n
	}
	for _, r := range p.GetReplaces() {
		l.Replaces = append(l.Replaces, replaceText{r.GetName()})
	}
	return l
}

// escapeForYAML escapes what JSON allows within a text, and YAML does not.
func escapeForYAML(data []byte) []byte {
	foreign := func(r rune) bool { return r >= 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff }
	if !bytes.ContainsFunc(data, foreign) {
		return data
	}
	var b strings.Builder
	for _, r := range string(data) {
		if foreign(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return []byte(b.String())
}
