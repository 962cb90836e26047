package agentdb

import "testing"

// OSA-62: the warning comes where 80 % of a quota are used, once for each time that it comes to that.
func TestQuotaWarnsAtEightyPercent(t *testing.T) {
	t.Parallel()
	q := quota{limit: 1000}
	for i, c := range []struct {
		used  int64
		near  bool
		warns bool
	}{{0, false, false}, {799, false, false}, {800, true, true}, {900, true, false}, {799, false, false}, {999, true, true}, {1000, true, false}, {1200, true, false}, {800, true, false}} {
		if near := q.nearLimit(c.used); near != c.near {
			t.Errorf("%d: %d of 1000 bytes are near the limit: %t", i, c.used, near)
		}
		if err := (&quota{limit: 1000, used: c.used}).check(); (err != nil) != (c.used >= 1000) {
			t.Errorf("%d: with %d of 1000 bytes a write ends with %v", i, c.used, err)
		}
		if warning := q.update(c.used); (warning != "") != c.warns {
			t.Errorf("%d: at %d of 1000 bytes it says %q", i, c.used, warning)
		}
	}
	if q := (&quota{}); q.nearLimit(1<<40) || q.update(1<<40) != "" {
		t.Error("no limit is one")
	}
}
