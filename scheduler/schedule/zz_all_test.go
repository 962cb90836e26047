package schedule_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestZZAll(t *testing.T) {
	f := func(text string, v ...int) field { return field{text, v} }
	all := func(lo, hi int) field { var v []int; for i := lo; i <= hi; i++ { v = append(v, i) }; return field{"*", v} }
	star := func(sp spec) spec { sp.dom, sp.month, sp.dow = all(1, 31), all(1, 12), all(0, 6); return sp }
	specs := []spec{
		star(spec{minute: f("30", 30), hour: f("2", 2)}), star(spec{minute: f("0", 0), hour: f("0", 0)}), star(spec{minute: f("15", 15), hour: f("1", 1)}),
		star(spec{minute: f("45", 45), hour: f("23", 23)}), star(spec{minute: f("0,30", 0, 30), hour: f("0-5", 0, 1, 2, 3, 4, 5)}),
		star(spec{minute: f("0,30", 0, 30), hour: all(0, 23)}),
	}
	root := "/usr/share/zoneinfo"
	if _, err := os.Stat(root); err != nil { t.Skip("no zoneinfo") }
	n, seen := 0, map[string]bool{}
	filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil { return err }
		name := strings.TrimPrefix(p, root+"/")
		if e.IsDir() { if name == "posix" || name == "right" { return fs.SkipDir }; return nil }
		zone, err := time.LoadLocation(name)
		if err != nil || name == "leapseconds" || strings.Contains(name, ".") || name == "localtime" { return nil }
		raw, _ := os.ReadFile(p)
		if seen[string(raw)] { return nil }
		seen[string(raw)] = true
		n++
		for _, c := range changes(zone) {
			if c.Year() > 2028 && c.Year()%4 != 0 { continue }
			for _, sp := range specs { compare(t, sp, name, zone, c.Truncate(time.Minute).Add(-30*time.Hour), c.Add(30*time.Hour)) }
		}
		return nil
	})
	t.Log(n, "zones")
}
