package redisstore

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// slotCount is how many slots a Cluster has.
const slotCount = 1 << 14

// slotOf returns the slot of a bucket.
func slotOf(k *store.Key) uint16 {
	var buf [store.KeyLen]byte
	return slotOfName(string(k.Append(buf[:0])))
}

// slotOfName returns the slot of a key: of what stands in its first braces if that is anything, else of all of it.
func slotOfName(name string) uint16 {
	if open := strings.IndexByte(name, '{'); open >= 0 {
		if tag, _, ok := strings.Cut(name[open+1:], "}"); ok && tag != "" {
			name = tag
		}
	}
	crc := uint16(0)
	for i := range len(name) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^name[i]]
	}
	return crc % slotCount
}

// crcTable is that of CRC-16/XMODEM, which the Redis Cluster specification chooses.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
