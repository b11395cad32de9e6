package config

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestParseMounts(t *testing.T) {
	t.Parallel()
	const mountinfo = `22 1 254:0 / / rw,relatime - ext4 /dev/vda1 rw
612 590 254:1 /var/lib/kubelet/pods/8f/volumes/kubernetes.io~configmap/rules/..2026_11_29/rules.yaml /etc/rules/rules.yaml ro,relatime master:1 - ext4 /dev/vda1 rw
613 590 0:50 / /mnt/with\040space\134and\011tab rw - tmpfs tmpfs rw
short line
`
	want := []string{"/", "/etc/rules/rules.yaml", "/mnt/with space\\and\ttab"}
	if diff := cmp.Diff(want, parseMounts(mountinfo)); diff != "" {
		t.Errorf("wrong mount points (-want +got):\n%s", diff)
	}
}

// A file of rules that is a mount point is found, through links too; other mounts, and directories, are not.
func TestStuck(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(dir, "rules")
	mounted, other, below := filepath.Join(rules, "a.yaml"), filepath.Join(dir, "b.yaml"), filepath.Join(rules, "below")
	write(t, mounted, "")
	write(t, other, "")
	write(t, filepath.Join(below, "c.yaml"), "")
	link := filepath.Join(dir, "link")
	symlink(t, "rules", link)
	mounts := []string{"/", rules, mounted, other, below, filepath.Join(dir, "gone")}
	for _, path := range []string{rules, link, mounted, filepath.Join(link, "a.yaml")} {
		if diff := cmp.Diff([]string{mounted}, stuck(placesOf(path), mounts)); diff != "" {
			t.Errorf("rules at %s: wrong files (-want +got):\n%s", path, diff)
		}
	}
	if got := stuck(placesOf(rules), []string{"/", rules, other}); got != nil {
		t.Errorf("no mounted file: got %v", got)
	}
}
