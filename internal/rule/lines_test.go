package rule

import (
	"testing"
	"unsafe"
)

// What a request reads of its node and rule lies in two cache lines, and nodes stay aligned to them: 320 bytes is what the
// allocator has for five.
func TestNodesFitCacheLines(t *testing.T) {
	t.Parallel()
	const line = 64
	var n treeNode
	if at := unsafe.Offsetof(n.rule) + unsafe.Offsetof(n.rule.first); at != line {
		t.Errorf("got the first limit at byte %d of a node, want %d", at, line)
	}
	if size := unsafe.Sizeof(n); size > 5*line || size <= 288 {
		t.Errorf("got a node of %d bytes, want 289 to %d", size, 5*line)
	}
}
