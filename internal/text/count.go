package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size formats a number of bytes: "21 B", "1.5 MiB".
func Size(bytes int64) string {
	n, unit := float64(max(bytes, 0)), -1
	for ; n >= 1024; unit++ {
		n /= 1024
	}
	switch {
	case unit < 0:
		return fmt.Sprintf("%.0f B", n)
	case n < 9.95:
		return fmt.Sprintf("%.1f %ciB", math.Round(n*10)/10, "KMGTPE"[unit])
	}
	return fmt.Sprintf("%.0f %ciB", math.Round(n), "KMGTPE"[unit])
}

// Comma formats a number with thousands separators: "1,234,567".
func Comma(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Plural formats a number with its noun: "1 row", "2 rows", "0 entries".
func Plural[N ~int | ~int64](n N, thing string) string {
	return fmt.Sprintf("%d %s", n, Noun(n, thing))
}

// Noun returns the singular or plural of thing for the number n.
func Noun[N ~int | ~int64](n N, thing string) string {
	if n == 1 {
		return thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok && !strings.ContainsAny(thing[max(len(stem)-1, 0):len(stem)], "aeiou") {
		return stem + "ies"
	}

	return thing + "s"
}

// List joins at most the given number of names: "a, b and 3 more".
func List(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Strings converts values of a string type to strings.
func Strings[T ~string](words []T) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}
