package nosleep_test

import (
	"strings"
	"testing"
	"time"

	"rouse/internal/nosleep"
	"rouse/internal/nosleep/nosleeptest"
)

// OSL-37: the machine is kept awake from Hold to release.
func TestHold(t *testing.T) {
	l := nosleeptest.New(t)
	release, err := nosleep.Inhibit(t.Context(), "a run is on")
	if err != nil {
		t.Fatal(err)
	}
	if asked := l.Asked(); len(asked) != 1 || asked[0] != "sleep:idle, rouse, a run is on, block" {
		t.Errorf("asked for %q", asked)
	}

	if !l.Holds(t, 50*time.Millisecond) {
		t.Error("it was released before")
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if l.Holds(t, 10*time.Second) {
		t.Error("it was not released")
	}
}

// OSL-37: Hold returns an error if logind refuses or is missing.
func TestCannotHold(t *testing.T) {
	nosleeptest.New(t).Refuse()
	if err := nosleep.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "logind does not keep this machine awake: Interactive authentication required.") {
		t.Errorf("%v", err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+t.TempDir()+"/none")
	if err := nosleep.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the system bus does not answer") {
		t.Errorf("%v", err)
	}
}
