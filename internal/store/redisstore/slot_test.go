package redisstore

import (
	"strconv"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// TestSlots asks a real server what it makes of keys.
func TestSlots(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", "0")
	names := []string{"", "123456789", "{}", "{a}", "a{b}c", "a{b}c{d}e", "{{a}}", "a{", "a}b{c", "{}{a}", "foo{{bar}}zap", "rl1:{probe1}"}
	for i := range 200 {
		var k store.Key
		copy(k[:], strconv.Itoa(i*i))
		names = append(names, k.String())
		if got, want := slotOf(&k), slotOfName(k.String()); got != want {
			t.Errorf("slot of %s: got %d by key and %d by name, want the same", k, got, want)
		}
	}
	for _, name := range names {
		want, err := server.Client().ClusterKeySlot(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got := slotOfName(name); int64(got) != want {
			t.Errorf("slot of %q: got %d, want %d", name, got, want)
		}
	}
}

// TestSlotsAreSpread checks that the four characters that decide a key's slot are enough: each of 1,024 stretches of slots gets its share.
func TestSlotsAreSpread(t *testing.T) {
	t.Parallel()
	k := new(store.Keyer)
	if err := k.Learn([]byte("a secret of more than 16 bytes")); err != nil {
		t.Fatal(err)
	}
	const keys, stretches = 1 << 18, 1 << 10
	var got [stretches]int
	for i := range keys {
		key := k.Key("limit", []string{strconv.Itoa(i)})
		got[int(slotOf(&key))*stretches/slotCount]++
	}
	for i, n := range got { // 256 on average, give or take 16
		if n < 256-6*16 || n > 256+6*16 {
			t.Errorf("stretch %d of the slots: got %d keys, want about 256", i, n)
		}
	}
}

// TestPartition holds that keys of one partition share a slot, so one script takes them.
func TestPartition(t *testing.T) {
	t.Parallel()
	keyer, err := store.NewKeyer([]byte("a secret for tests"))
	if err != nil {
		t.Fatal(err)
	}
	slots := make(map[uint16]bool)
	for i := range 50 {
		account := strconv.Itoa(i)
		first := keyer.Partitioned("one", []string{"a"}, "shop", account)
		for _, values := range [][]string{{"b"}, {"c"}, {account}} {
			if k := keyer.Partitioned("two", values, "shop", account); slotOf(&k) != slotOf(&first) || k == first {
				t.Errorf("keys of partition %d: got %s and %s, want two of one slot", i, first, k)
			}
		}
		slots[slotOf(&first)] = true
	}
	if len(slots) < 40 {
		t.Errorf("slots of 50 partitions: got %d, want about as many", len(slots))
	}
}

func TestSlotAllocates(t *testing.T) {
	k := store.Key{1}
	if got := testing.AllocsPerRun(100, func() { slotOf(&k) }); got > 0 {
		t.Errorf("slotOf: got %v allocations, want 0", got)
	}
}

func TestBeside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ addr, asked, want string }{
		{"10.0.0.1:7000", "10.0.0.2:7001", "10.0.0.1:7000"},
		{":7000", "10.0.0.2:7001", "10.0.0.2:7000"},
		{"?:7000", "[::1]:7001", "[::1]:7000"},
		{"host.example:7000", "10.0.0.2:7001", "host.example:7000"},
	} {
		if got := beside(tt.addr, tt.asked); got != tt.want {
			t.Errorf("%s, told by %s: got %s, want %s", tt.addr, tt.asked, got, tt.want)
		}
	}
}
