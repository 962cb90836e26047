package text

import (
	"math"
	"strconv"
	"strings"
)

const (
	exactDigits = 15 // significant ones that a float64 gives back as somebody wrote them
	soundDigits = 14 // that survive a sum of such numbers
	noiseDigits = 2  // of the sound ones that have to be zero for what follows to be noise
)

// Decimal is the number as a person would have written it: 122.35, where the arithmetic of binary fractions
// made 122.35000000000001 of it. A number that somebody may have written, and one whose digits go on, as those
// of 1/3, stays as it is.
func Decimal(f float64) float64 {
	if f == math.Trunc(f) || significant(strconv.FormatFloat(f, 'e', -1, 64)) <= exactDigits {
		return f
	}

	rounded := strconv.FormatFloat(f, 'e', soundDigits-1, 64)
	if significant(rounded) > soundDigits-noiseDigits {
		return f
	}
	written, err := strconv.ParseFloat(rounded, 64)
	if err != nil {
		return f
	}
	return written
}

// significant counts the digits of a number in scientific notation, without zeros at the end.
func significant(number string) int {
	mantissa, _, _ := strings.Cut(strings.TrimPrefix(number, "-"), "e")
	return len(strings.TrimRight(strings.Replace(mantissa, ".", "", 1), "0"))
}
