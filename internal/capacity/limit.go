package capacity

import "errors"

// Service is what stands behind a limit. All must be positive.
type Service struct {
	Instances   float64
	Rate        float64 // requests a second that an instance can serve
	Utilisation float64 // share of that which limits may hand out, in (0, 1]
	Tenants     float64 // who share it
}

// Limit returns the requests a second that each tenant can be granted so that all of them at once are no more than the
// service serves. The error says which number makes no sense.
func (s Service) Limit() (float64, error) {
	err := errors.Join(
		positive("instances", s.Instances, 1e9), positive("rate", s.Rate, 1e12),
		positive("utilisation", s.Utilisation, 1), positive("tenants", s.Tenants, 1e12),
	)
	return s.Instances * s.Rate * s.Utilisation / s.Tenants, err
}
