package bench

import (
	"slices"
	"testing"
)

// Where the floor cannot be built the figures are there, and no verdict.
func TestStartWithoutAFloor(t *testing.T) {
	for _, c := range []struct {
		floor []float64
		want  []string
	}{
		{[]float64{5, 5, 5}, []string{"ready", "10.0", "5.0", "ms", "2.00", "≤ 3× floor", "met"}},
		{[]float64{2, 2, 2}, []string{"ready", "10.0", "2.0", "ms", "5.00", "≤ 3× floor", "missed"}},
		{nil, []string{"ready", "10.0", "–", "ms", "–", "–", "–"}},
	} {
		if got := besideFloor("ready", "ms", []float64{10, 10, 10}, c.floor).Row(); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
