package tabular

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// dateFormat is the way in which a spreadsheet displays a number.
type dateFormat uint8

const (
	asNumber dateFormat = iota
	asDate
	asTime // time of day or duration
)

// formatOfNumber returns the format of a built-in format number.
func formatOfNumber(id int) dateFormat {
	switch {
	case id >= 18 && id <= 21, id >= 45 && id <= 47:
		return asTime
	case id >= 14 && id <= 22, id >= 27 && id <= 36, id >= 50 && id <= 58:
		return asDate
	}
	return asNumber
}

// shownAsIs matches the literal parts of a format code: "text", \x, _x, *x, and colours and
// conditions in brackets. It does not match the durations [h], [m] and [s].
var shownAsIs = regexp.MustCompile(`"[^"]*"|[\\_*].|\[(?:[^hmsHMS\]][^\]]*|[hmsHMS]+[^hmsHMS\]][^\]]*)\]`)

// formatOfCode searches the first section of a format code for letters of dates and times.
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

// text formats a date as 2006-01-02, an instant as 2006-01-02T15:04:05 and a time as 15:04:05. It
// returns "" if the number is none of these.
func (f dateFormat) text(serial float64, date1904 bool) string {
	if f == asNumber || serial < 0 || serial >= lastSerial {
		return ""
	}

	// Round to milliseconds, because fractions of a day are not exact in a float64.
	span := time.Duration(math.Round(math.Mod(serial, 1)*86_400_000)) * time.Millisecond
	days := int(serial)
	// Day 0 is not a date in the 1900 system, so a fraction alone is a time of day.
	if f == asTime || days == 0 && !date1904 && span > 0 {
		hours := days*24 + int(span/time.Hour)
		return fmt.Sprintf("%02d:%02d:%02d", hours, int(span/time.Minute)%60, int(span/time.Second)%60)
	}

	base := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	switch {
	case date1904:
		base = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	case days < 60: // spreadsheets treat 1900 as a leap year
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
