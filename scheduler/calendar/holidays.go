package calendar

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rickar/cal/v2"
	"github.com/rickar/cal/v2/ar"
	"github.com/rickar/cal/v2/at"
	"github.com/rickar/cal/v2/au"
	"github.com/rickar/cal/v2/be"
	"github.com/rickar/cal/v2/bg"
	"github.com/rickar/cal/v2/br"
	"github.com/rickar/cal/v2/ca"
	"github.com/rickar/cal/v2/ch"
	"github.com/rickar/cal/v2/cz"
	"github.com/rickar/cal/v2/de"
	"github.com/rickar/cal/v2/dk"
	"github.com/rickar/cal/v2/ecb"
	"github.com/rickar/cal/v2/es"
	"github.com/rickar/cal/v2/fr"
	"github.com/rickar/cal/v2/gb"
	"github.com/rickar/cal/v2/gr"
	"github.com/rickar/cal/v2/hr"
	"github.com/rickar/cal/v2/ie"
	"github.com/rickar/cal/v2/it"
	"github.com/rickar/cal/v2/jp"
	"github.com/rickar/cal/v2/lt"
	"github.com/rickar/cal/v2/lv"
	"github.com/rickar/cal/v2/nl"
	"github.com/rickar/cal/v2/no"
	"github.com/rickar/cal/v2/nz"
	"github.com/rickar/cal/v2/pl"
	"github.com/rickar/cal/v2/ro"
	"github.com/rickar/cal/v2/ru"
	"github.com/rickar/cal/v2/se"
	"github.com/rickar/cal/v2/si"
	"github.com/rickar/cal/v2/sk"
	"github.com/rickar/cal/v2/ua"
	"github.com/rickar/cal/v2/us"
	"github.com/rickar/cal/v2/za"

	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// holidays are the public holidays of countries (ISO 3166-1) and subdivisions (ISO 3166-2). EU is
// the TARGET calendar of banks.
var holidays = map[string][]*cal.Holiday{
	"AR": ar.Holidays, "AT": at.Holidays, "BE": be.Holidays, "BG": bg.Holidays, "BR": br.Holidays, "CA": ca.Holidays, "CH": ch.Holidays,
	"CZ": cz.Holidays, "DE": de.Holidays, "DK": dk.Holidays, "ES": es.Holidays, "EU": ecb.Holidays, "FR": fr.Holidays, "GB": gb.Holidays, "GR": gr.Holidays,
	"HR": hr.Holidays, "IE": ie.Holidays, "IT": it.Holidays, "JP": jp.Holidays, "LT": lt.Holidays, "LV": lv.Holidays, "NL": nl.Holidays,
	"NO": no.Holidays, "NZ": nz.Holidays, "PL": pl.Holidays, "RO": ro.Holidays, "RU": ru.Holidays, "SE": se.Holidays, "SI": si.Holidays,
	"SK": sk.Holidays, "UA": ua.Holidays, "US": us.Holidays, "ZA": za.Holidays,

	"AU-ACT": au.HolidaysACT, "AU-NSW": au.HolidaysNSW, "AU-NT": au.HolidaysNT, "AU-QLD": au.HolidaysQLD, "AU-SA": au.HolidaysSA,
	"AU-TAS": au.HolidaysTAS, "AU-VIC": au.HolidaysVIC, "AU-WA": au.HolidaysWA,

	"CH-AG": ch.HolidaysAG, "CH-AI": ch.HolidaysAI, "CH-AR": ch.HolidaysAR, "CH-BE": ch.HolidaysBE, "CH-BL": ch.HolidaysBL, "CH-BS": ch.HolidaysBS,
	"CH-FR": ch.HolidaysFR, "CH-GE": ch.HolidaysGE, "CH-GL": ch.HolidaysGL, "CH-GR": ch.HolidaysGR, "CH-JU": ch.HolidaysJU, "CH-LU": ch.HolidaysLU,
	"CH-NE": ch.HolidaysNE, "CH-NW": ch.HolidaysNW, "CH-OW": ch.HolidaysOW, "CH-SG": ch.HolidaysSG, "CH-SH": ch.HolidaysSH, "CH-SO": ch.HolidaysSO,
	"CH-SZ": ch.HolidaysSZ, "CH-TG": ch.HolidaysTG, "CH-TI": ch.HolidaysTI, "CH-UR": ch.HolidaysUR, "CH-VD": ch.HolidaysVD, "CH-VS": ch.HolidaysVS,
	"CH-ZG": ch.HolidaysZG, "CH-ZH": ch.HolidaysZH,

	"DE-BB": de.HolidaysBB, "DE-BE": de.HolidaysBE, "DE-BW": de.HolidaysBW, "DE-BY": de.HolidaysBY, "DE-HB": de.HolidaysHB, "DE-HE": de.HolidaysHE,
	"DE-HH": de.HolidaysHH, "DE-MV": de.HolidaysMV, "DE-NI": de.HolidaysNI, "DE-NW": de.HolidaysNW, "DE-RP": de.HolidaysRP, "DE-SH": de.HolidaysSH,
	"DE-SL": de.HolidaysSL, "DE-SN": de.HolidaysSN, "DE-ST": de.HolidaysST, "DE-TH": de.HolidaysTH,
}

// Places returns the sorted codes of the places with known holidays.
func Places() []string { return slices.Sorted(maps.Keys(holidays)) }

// Holidays returns the public holidays of a place in the years around now. It includes days of
// observance. It returns an error if the place is unknown.
func Holidays(place string, now time.Time) ([]schedule.Entry, error) {
	known, ok := holidays[place]
	if !ok {
		return nil, fmt.Errorf("no holidays are known of %q%s; there are %s", place, regionHint(place), strings.Join(Places(), ", "))
	}

	var out []schedule.Entry
	for year := now.Year() - past; year <= now.Year()+future; year++ {
		for _, h := range known {
			actual, observed := h.Calc(year)
			out = append(out, wholeDay(h.Name, actual)...)
			if !observed.Equal(actual) {
				out = append(out, wholeDay(h.Name+", observed", observed)...)
			}
		}
	}
	return out, nil
}

// regionHint returns a hint if only the subdivisions of the country are known, or only the country
// itself.
func regionHint(place string) string {
	country, _, part := strings.Cut(place, "-")
	switch parts := slices.ContainsFunc(Places(), func(p string) bool { return strings.HasPrefix(p, country+"-") }); {
	case !part && parts:
		return ", only of its parts"
	case part && holidays[country] != nil && !parts:
		return ", only of the whole country " + country
	}
	return ""
}

// wholeDay returns the entry for a whole day. Only the date of t matters, because the library
// returns times in the system's zone.
func wholeDay(name string, t time.Time) []schedule.Entry {
	if t.IsZero() {
		return nil
	}
	day := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	return []schedule.Entry{{Text: text.OneLine(name), From: day, To: day.AddDate(0, 0, 1), Floating: true}}
}
