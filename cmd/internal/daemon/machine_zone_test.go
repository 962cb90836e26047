package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/scheduler/dispatch"
)

// A daemon follows the machine's zone without reading its configuration, which may be invalid now.
func TestFollowZone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its zone is read once")
	}
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: keeper, workdir: ./work}]
notifications: [{name: phone, kind: desktop, quiet_hours: "22:00-07:00"}]
jobs:
  - {name: daily, agent: keeper, schedule: "0 8 * * *", playbook: [{call: db_schema}]}
  - {name: tokyo, agent: keeper, schedule: "0 8 * * *", timezone: Asia/Tokyo, playbook: [{call: db_schema}]}
`})
	place := filepath.Join(dir, "localtime")
	move := func(zone string) {
		t.Helper()
		if err := errors.Join(os.Symlink("/usr/share/zoneinfo/"+zone, place+"~"), os.Rename(place+"~", place)); err != nil {
			t.Fatal(err)
		}
	}
	move("America/New_York")
	t.Setenv("TZ", place)

	cfg, err := plan.Load(filepath.Join(dir, "rouse.yaml"), "")
	if err != nil {
		t.Fatal(err)
	}
	v, log := &logging.Var{}, &cmdtest.Log{}
	d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Serves: true, Logger: logging.New(cfg, v, log), LogVar: v})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dispatcher, err := dispatch.New(d.dispatcher)
	if err != nil {
		t.Fatal(err)
	}
	d.dispatching.Store(dispatcher)
	d.Reloader.Follows = false // like a configuration from a pipe
	inForce := func(zone string) {
		t.Helper()
		s := d.Current()
		if s.Config.Zone().String() != zone || s.Plan.Runner.Zone.String() != zone || v.Zone().String() != zone || s.Plan.Runner.Jobs["daily"].Zone.String() != zone ||
			s.Plan.Runner.Jobs["tokyo"].Zone.String() != "Asia/Tokyo" || plan.ChannelRules(s.Config, nil)["phone"].Zone.String() != zone {
			t.Errorf("not all is in %s", zone)
		}
		for job, in := range map[string]*time.Location{"daily": s.Config.Zone(), "tokyo": s.Plan.Runner.Jobs["tokyo"].Zone} {
			if got := d.scheduler.NextStart(job, time.Now()).In(in); got.Hour() != 8 {
				t.Errorf("in %s %s is next at %s", zone, job, got)
			}
		}
		checks, err := d.Doctor(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		c := checkNamed(t, checks, "clock")
		if !strings.Contains(c.Detail, zone+", ") || !strings.Contains(c.Detail, "followed when it changes") {
			t.Errorf("doctor: %+v", c)
		}
	}

	// A link that is replaced by ln -sf is missing for a moment.
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	d.Reloader.FollowZone(t.Context())
	move("America/New_York")
	d.Reloader.FollowZone(t.Context())
	inForce("America/New_York")

	move("Europe/Berlin")
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan struct{})
	close(ready)
	go d.Reloader.Run(ctx, ready)
	cmdtest.Until(t, "the change of the zone", func() bool { return d.Zone().String() == "Europe/Berlin" })
	move("Asia/Kolkata")
	d.Reloader.Do(t.Context(), d.Reloader.CheckNow) // like a command that starts a run
	d.Reloader.Do(t.Context(), d.Reloader.CheckNow)
	cancel()
	<-d.Reloader.Stopped()
	inForce("Asia/Kolkata")

	events, err := d.ledger.Events.Between(t.Context(), "", time.Time{}, time.Now(), 10, "zone.changed")
	if err != nil || len(events) != 2 || string(events[0].Data) != `{"from":"America/New_York","summary":"from America/New_York to Europe/Berlin; other times for daily","to":"Europe/Berlin"}` {
		t.Errorf("%+v (%v)", events, err)
	}
	if got := log.String(); strings.Count(got, "the time zone of the machine changed") != 2 || !strings.Contains(got, "+05:30") {
		t.Errorf("log: %s", got)
	}
}
