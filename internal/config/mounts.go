package config

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mountPoints lists the mount points of this process, none where the system does not say.
func mountPoints() []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return parseMounts(string(data))
}

// parseMounts reads the fifth field of each line of a mountinfo, as proc_pid_mountinfo(5) describes it.
func parseMounts(mountinfo string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape(fields[4]))
		}
	}
	return points
}

// unescape undoes the octal escapes of spaces, tabs, newlines and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// stuck returns the files among the places that are mount points. A mount shows the file it was made of for ever, also
// when that is long replaced: in Kubernetes a subPath of a ConfigMap never changes while the pod lives.
func stuck(p places, mounts []string) []string {
	var found []string
	for _, point := range mounts {
		info, err := os.Stat(point)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		for _, dir := range p.inside {
			if real(dir) == filepath.Dir(point) {
				found = append(found, point)
			}
		}
		for _, name := range p.names {
			if real(name) == point {
				found = append(found, point)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// real returns the absolute path without links, or path itself if there is none.
func real(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if r, err := filepath.EvalSymlinks(abs); err == nil {
		return r
	}
	return abs
}
