package rule

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// domainSpec is a domain as its files tell it.
type domainSpec struct {
	name        string
	profile     Profile
	first       *fileSpec // the first of its files
	defaults    *defaultsSpec
	blocklist   []*blockSpec      // of all its files in name order, as the next two are
	lookups     []*lookupSpec     //
	descriptors []*descriptorSpec // the first level

	algorithm bucket.Algorithm // resolved defaults
	policy    bucket.Policy
}

// gather puts the files of each domain together, in the order of their first files.
func gather(files []*fileSpec, o Options, p *problems) []*domainSpec {
	var domains []*domainSpec
	byName := map[string]*domainSpec{}
	for _, f := range files {
		at := f.at.field("domain", f.Domain.at)
		if f.Domain.s == "" && !f.Domain.bad {
			p.wrong(at, "config file cannot have empty domain")
		}
		d := byName[f.Domain.s]
		switch {
		case f.Domain.s == "": // each such file stands for itself, so that the rest of it is checked
			d = nil
		case d == nil:
		case d.profile != f.Profile.p:
			p.invalid(at, "domain '%s' has profile %s here and profile %s at %s: want one profile for all files of a domain", short(d.name),
				f.Profile.p, d.profile, d.first.at.field("domain", d.first.Domain.at).position())
			d = nil
		case d.profile == Envoy && !o.MergeDomains:
			p.invalid(at, "duplicate domain '%s' in config file; first at %s", short(d.name), d.first.at.field("domain", d.first.Domain.at).position())
			d = nil
		}
		if d == nil {
			d = &domainSpec{name: f.Domain.s, profile: f.Profile.p, first: f}
			domains = append(domains, d)
			if byName[d.name] == nil {
				byName[d.name] = d
			}
		}
		switch {
		case f.Defaults == nil:
		case d.defaults != nil:
			p.invalid(f.Defaults.at, "defaults of domain '%s' are given twice, first at %s", short(d.name), d.defaults.at.position())
		default:
			d.defaults = f.Defaults
		}
		d.blocklist = append(d.blocklist, f.Blocklist...)
		d.lookups = append(d.lookups, f.Lookups...)
		d.descriptors = append(d.descriptors, f.Descriptors...)
	}
	return domains
}
