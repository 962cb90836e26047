package scheduler

import (
	"testing"

	"pgregory.net/rapid"
)

// However entries come, go and move, the first is the earliest and each knows its place.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h dueHeap
		var out []*entry // that are not in the heap
		in := map[*entry]int64{}
		for range 40 {
			out = append(out, &entry{index: -1})
		}

		at := rapid.Int64Range(1, 20)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if len(out) == 0 {
					t.Skip()
				}
				e := out[0]
				out, in[e] = out[1:], at.Draw(t, "at")
				h.push(heapItem{in[e], e})
			},
			"remove": func(t *rapid.T) {
				if len(h) == 0 {
					t.Skip()
				}
				e := h[rapid.IntRange(0, len(h)-1).Draw(t, "place")].entry
				h.remove(int(e.index))
				delete(in, e)
				out = append(out, e)
			},
			"fix": func(t *rapid.T) {
				if len(h) == 0 {
					t.Skip()
				}
				e := h[rapid.IntRange(0, len(h)-1).Draw(t, "place")].entry
				in[e] = at.Draw(t, "at")
				h.fix(int(e.index), heapItem{in[e], e})
			},
			"": func(t *rapid.T) {
				if len(h) != len(in) {
					t.Fatalf("%d of %d entries", len(h), len(in))
				}

				for e, at := range in {
					if h[e.index] != (heapItem{at, e}) || h[0].at > at {
						t.Fatalf("place %d, which is due at %d, behind %d", e.index, at, h[0].at)
					}
				}

				for _, e := range out {
					if e.index >= 0 {
						t.Fatalf("an entry that is out has place %d", e.index)
					}
				}
			},
		})
	})
}
