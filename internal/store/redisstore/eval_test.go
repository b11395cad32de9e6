package redisstore

import "context"

// eval runs the script on calls, as a batch does, and keeps its replies in them.
func (s *Store) eval(ctx context.Context, calls ...*call) error {
	var e errand
	e.pack(calls)
	e.at = s.lanes.first().node.Load()
	for {
		s.carry([]*errand{&e})
		err := e.cmd.Err()
		if err == nil {
			return e.read()
		}
		if s.reroute(&e, err) == nil {
			return err
		}
	}
}
