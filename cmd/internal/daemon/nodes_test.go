package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger/ledgertest"
)

// A clock that differs from the database by more than a minute is reported at the start, in the
// list of nodes and by doctor. The ledger uses the database's clock. A smaller difference is not
// reported.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		apart time.Duration // how far the machine is ahead
		want  string        // "" means no message
	}{
		"as one":         {0, ""},
		"a little ahead": {50 * time.Second, ""},
		"ahead":          {90 * time.Second, "the clock of this machine is 1m30s ahead of that of the database"},
		"behind":         {-2 * time.Hour, "the clock of this machine is 2h0m0s behind that of the database"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url, _ := ledgertest.Postgres(t)
			dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nnode: north\nengine: {postgres: \"" + url + "\"}\nagents: [{name: a}]\n"})
			cfg, err := plan.Load(dir+"/rouse.yaml", "")
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Serves: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Now: func() time.Time { return time.Now().Add(c.apart) }})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()

			is, err := d.Nodes.Engine(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			check := d.Nodes.Check(t.Context())
			for _, said := range []string{strings.Join(is.Problems, "; "), check.Detail, log.String()} {
				if c.want == "" && strings.Contains(said, "clock") || !strings.Contains(said, c.want) {
					t.Errorf("it says: %s", said)
				}
			}
			if skew := time.Duration(is.SkewMS) * time.Millisecond; (skew + c.apart).Abs() > 10*time.Second {
				t.Errorf("the database is %s ahead", skew)
			}
			if off := time.Until(d.ledger.Now()); off.Abs() > 10*time.Second {
				t.Errorf("what is recorded is %s off", off)
			}
		})
	}
}
