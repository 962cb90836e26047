package tool

import "github.com/agnivade/levenshtein"

// hint proposes the known name that a wrong one was probably meant as, "" when none is near.
func hint(wrong string, known []string) string {
	best, distance := "", len(wrong)/2+1
	for _, k := range known {
		if d := levenshtein.ComputeDistance(wrong, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return `; did you mean "` + best + `"?`
}
