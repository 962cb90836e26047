package transfer

import (
	"testing"
)

// Texts that survive the conversion to a number, and texts that do not.
func TestKeepsDigits(t *testing.T) {
	for cell, want := range map[string]bool{
		"7": true, "0": true, "-12": true, "0.5": true, "-0.50": true, "1e5": true, " 12 ": true, "9223372036854775807": true, "123456789.123456": true,
		"007": false, "-01": false, "00": false, "007.5": false, "+49170": false, "9223372036854775808": false, "12345678901234567890": false, "1234567890.123456": false,
	} {
		if got := keepsDigits(cell); got != want {
			t.Errorf("%q: %v", cell, got)
		}
	}
}
