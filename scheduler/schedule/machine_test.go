package schedule_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"rouse/scheduler/schedule"
)

func TestMachineZone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no file of the zone")
	}
	dir := t.TempDir()
	place := filepath.Join(dir, "localtime")
	link := func(target string) func(*testing.T) {
		return func(t *testing.T) {
			if err := os.Symlink(target, place); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(text string) func(*testing.T) {
		return func(t *testing.T) {
			if err := os.WriteFile(place, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A zone with a constant offset of 2.5 hours, as a version 1 file of tzfile(5).
	data := "TZif" + string(make([]byte, 16+4*4)) + "\x00\x00\x00\x01\x00\x00\x00\x04" + "\x00\x00\x23\x28\x00\x00" + "XST\x00"

	for name, c := range map[string]struct {
		tz      string
		prepare func(*testing.T)
		want    string
		ahead   int // in seconds
		changes bool
	}{
		"link":          {place, link("/usr/share/zoneinfo/Asia/Tokyo"), "Asia/Tokyo", 9 * 3600, true},
		"relative link": {":" + place, link("../usr/share/zoneinfo/Asia/Kolkata"), "Asia/Kolkata", 19800, true},
		"macOS":         {place, link("/var/db/timezone/zoneinfo/Etc/UTC"), "Etc/UTC", 0, true},
		"copy":          {place, write(data), "Local", 9000, true},
		"broken":        {place, write("no zone"), "UTC", 0, true},
		"unknown link":  {place, link("/usr/share/zoneinfo/Mars/Base"), "UTC", 0, true},
		"nothing":       {place, func(*testing.T) {}, "UTC", 0, true},
		"name":          {"Asia/Tokyo", func(*testing.T) {}, time.Local.String(), -1, false},
		"empty":         {"", func(*testing.T) {}, time.Local.String(), -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(place)
			c.prepare(t)
			t.Setenv("TZ", c.tz)
			zone, changes := schedule.MachineZone()
			if again, _ := schedule.MachineZone(); zone != again {
				t.Error("the same zone is another one when it is read again")
			}
			if _, ahead := time.Unix(0, 0).AddDate(50, 0, 0).In(zone).Zone(); zone.String() != c.want || changes != c.changes || c.ahead >= 0 && ahead != c.ahead {
				t.Errorf("%s, %d s ahead, changes: %t", zone, ahead, changes)
			}
		})
	}
}
