package tabular

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// dateFormat says how a spreadsheet shows a number.
type dateFormat uint8

const (
	asNumber dateFormat = iota
	asDate
	asTime // of a day, or a length of time
)

// formatOfNumber knows the formats that have a number instead of a code.
func formatOfNumber(id int) dateFormat {
	switch {
	case id >= 18 && id <= 21, id >= 45 && id <= 47:
		return asTime
	case id >= 14 && id <= 22, id >= 27 && id <= 36, id >= 50 && id <= 58:
		return asDate
	}
	return asNumber
}

// shownAsIs is what a format code shows as it stands: "text", \x, _x, *x, and colours and
// conditions in brackets, but not [h], [m] and [s], which are lengths of time.
var shownAsIs = regexp.MustCompile(`"[^"]*"|[\\_*].|\[(?:[^hmsHMS\]][^\]]*|[hmsHMS]+[^hmsHMS\]][^\]]*)\]`)

// formatOfCode looks for the letters of dates and times in a format code's first section.
func formatOfCode(code string) dateFormat {
	code = shownAsIs.ReplaceAllString(code, "")
	code, _, _ = strings.Cut(strings.ToLower(code), ";")
	if strings.Contains(code, "general") {
		return asNumber
	}

	switch hour := strings.ContainsAny(code, "hs"); {
	case strings.ContainsAny(code, "yd"), strings.Contains(code, "m") && !hour:
		return asDate
	case hour:
		return asTime
	}

	return asNumber
}

const lastSerial = 2_958_466 // the day after 9999-12-31

// text writes a day as 2006-01-02, an instant as 2006-01-02T15:04:05 and a time as
// 15:04:05; "" when the number stays one.
func (f dateFormat) text(serial float64, date1904 bool) string {
	if f == asNumber || serial < 0 || serial >= lastSerial {
		return ""
	}

	// Rounded to milliseconds: a fraction of a day has no exact float64.
	span := time.Duration(math.Round(math.Mod(serial, 1)*86_400_000)) * time.Millisecond
	days := int(serial)
	// Day 0 is no date in the 1900 system, so a fraction alone is a time of day.
	if f == asTime || days == 0 && !date1904 && span > 0 {
		hours := days*24 + int(span/time.Hour)
		return fmt.Sprintf("%02d:%02d:%02d", hours, int(span/time.Minute)%60, int(span/time.Second)%60)
	}

	base := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	switch {
	case date1904:
		base = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	case days < 60: // spreadsheets believe that 1900 had a 29 February
		base = base.AddDate(0, 0, 1)
	}

	at := base.AddDate(0, 0, days).Add(span)
	switch {
	case span == 0:
		return at.Format("2006-01-02")
	case span%time.Second == 0:
		return at.Format("2006-01-02T15:04:05")
	}

	return at.Format("2006-01-02T15:04:05.000")
}
