package memstore

import "unsafe"

// Bytes returns what buckets and their indexes take, in bytes, but for the entries of logs: memory that holds no pointers,
// so that a garbage collection does not look at it.
func (s *Store) Bytes() uint64 {
	n := s.overflow.bytes()
	for i := range s.shards {
		n += s.shards[i].bytes()
	}
	return n
}

func (s *shard) bytes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.chunks))*uint64(unsafe.Sizeof([chunkSlots]slot{})) + uint64(len(s.index))*uint64(unsafe.Sizeof(uint64(0)))
}
