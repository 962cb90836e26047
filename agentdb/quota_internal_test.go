package agentdb

import (
	"errors"
	"testing"

	"rouse/agentdb/dberr"
	"rouse/internal/contract"
)

// OSA-62: the warning is given at 80 % of the quota, once each time usage reaches it.
func TestQuotaWarnsAtEightyPercent(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-62")
	warned := int64(row.Number("80")) * 10
	q := Quota{limit: 1000}
	for i, c := range []struct {
		used  int64
		near  bool
		warns bool
	}{{0, false, false}, {warned - 1, false, false}, {warned, true, true}, {900, true, false}, {799, false, false}, {999, true, true}, {1000, true, false}, {1200, true, false}, {800, true, false}} {
		if near := q.nearLimit(c.used); near != c.near {
			t.Errorf("%d: %d of 1000 bytes are near the limit: %t", i, c.used, near)
		}
		err, refused := (&Quota{limit: 1000, used: c.used}).check(), new(dberr.Error)
		if (err != nil) != (c.used >= 1000) || err != nil && (!errors.As(err, &refused) || refused.Kind != row.Quote("rejected")) {
			t.Errorf("%d: with %d of 1000 bytes a write ends with %v", i, c.used, err)
		}
		if warning := q.update(c.used); (warning != "") != c.warns {
			t.Errorf("%d: at %d of 1000 bytes it says %q", i, c.used, warning)
		}
	}
	if q := (&Quota{}); q.nearLimit(1<<40) || q.update(1<<40) != "" {
		t.Error("no limit is one")
	}
}
