package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"rouse/agentdb"
	"rouse/internal/text"
)

// Limits of a chart.
const (
	maxBars   = 20
	maxPoints = 500
	maxSlices = 7 // the last one combines the rest
)

// chart is a series of values.
type chart struct {
	Name       string
	Points     []point
	Of         int     // number of rows
	Top        float64 // largest value
	Half, Most string  // p50 and p95, formatted
}

// point is a value of a chart.
type point struct {
	Label, Shown, Link, Class string
	Value                     float64
}

// text returns the label and the value.
func (p point) text() string { return p.Label + ": " + p.Shown }

func (c *chart) add(p point) {
	c.Points = append(c.Points, p)
	c.Top = max(c.Top, p.Value)
}

// say sets the formatted percentiles.
func (c *chart) say(word func(float64) string) {
	if len(c.Points) == 0 {
		return
	}
	values := make([]float64, len(c.Points))
	for i, p := range c.Points {
		values[i] = p.Value
	}
	slices.Sort(values)
	c.Half, c.Most = word(percentile(values, 50)), word(percentile(values, 95))
}

// percentile returns the smallest value that is not exceeded by the given percentage of the sorted
// values.
func percentile(sorted []float64, of int) float64 {
	return sorted[max(0, (len(sorted)*of+99)/100-1)]
}

// Sizes of drawings, in SVG units.
const (
	columnsWide, columnsHigh = 900, 100
	lineWide, lineHigh       = 360, 140
	barHigh                  = 12
	barsWide                 = 360
)

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// column returns the rectangle of a point in a column chart.
func (c chart) column(i int) (x, y, width, height string) {
	w := float64(columnsWide) / float64(max(len(c.Points), 30))
	h := max(2, c.Points[i].Value/c.Top*(columnsHigh-4))
	return fixed(float64(i) * w), fixed(columnsHigh - h), fixed(w * 0.8), fixed(h)
}

// bar returns the length of a point's bar. It is 0 for negative values.
func (c chart) bar(p point) string {
	if c.Top <= 0 {
		return "0"
	}
	return fixed(max(0, p.Value/c.Top) * barsWide)
}

// polyline returns the line through all points.
func (c chart) polyline() string {
	low, high := 0.0, c.Top
	for _, p := range c.Points {
		low = min(low, p.Value)
	}
	if high == low {
		high = low + 1
	}

	out := ""
	for i, p := range c.Points {
		x := float64(lineWide-8)*float64(i)/float64(max(1, len(c.Points)-1)) + 4
		y := lineHigh - 4 - (p.Value-low)/(high-low)*(lineHigh-8)
		out += fixed(x) + "," + fixed(y) + " "
	}
	return out
}

// slice is a part of a pie chart.
type slice struct {
	Path, Class, Label string
}

// slices returns the parts of a pie chart with radius 60, clockwise from the top.
func (c chart) slices() []slice {
	total := 0.0
	for _, p := range c.Points {
		total += max(0, p.Value)
	}
	if total == 0 {
		return nil
	}

	at := func(turn float64) string {
		a := 2*math.Pi*turn - math.Pi/2
		return fixed(64+60*math.Cos(a)) + " " + fixed(64+60*math.Sin(a))
	}

	var out []slice
	from := 0.0
	for i, p := range c.Points {
		part := max(0, p.Value) / total
		// An arc of a full turn would start and end at the same point and draw nothing.
		part = min(part, 0.9999)
		large := 0
		if part > 0.5 {
			large = 1
		}
		out = append(out, slice{fmt.Sprintf("M64 64 L%s A60 60 0 %d 1 %s Z", at(from), large, at(from+part)), "slice" + strconv.Itoa(i%maxSlices), p.text()})
		from += part
	}
	return out
}

// chartOf makes a chart from the rows of a view. The values come from the first numeric column, the
// labels from the first other column. It returns false if there is no numeric column.
func chartOf(rows agentdb.Rows, most int) (c chart, ok bool) {
	label, value := "", ""
	for _, name := range rows.Columns {
		numbers := len(rows.Rows) > 0
		for _, row := range rows.Rows {
			if _, isNumber := numeric(row[name]); !isNumber && row[name] != nil {
				numbers = false
			}
		}
		if numbers && value == "" {
			value = name
		} else if !numbers && label == "" {
			label = name
		}
	}
	if value == "" {
		return c, false
	}
	// If all columns are numeric, the first provides the labels and the second the values.
	if i := slices.Index(rows.Columns, value); label == "" && len(rows.Columns) > i+1 {
		label, value = value, rows.Columns[i+1]
	}

	c.Name = value
	for _, row := range rows.Rows {
		n, isNumber := numeric(row[value])
		if !isNumber {
			continue // a missing value is not zero
		}
		if len(c.Points) == most {
			break
		}
		c.add(point{Label: text.OneLine(text.Truncate(cellText(row[label]), 40)), Shown: cellText(row[value]), Value: n})
	}
	c.Of = len(c.Points)
	return c, c.Of > 0
}

// drawnAs returns the chart of the type a view asks for. It returns false if the rows cannot be
// drawn.
func drawnAs(hint string, rows agentdb.Rows) (c chart, ok bool) {
	switch hint {
	case "bar":
		return chartOf(rows, maxBars)
	case "line":
		return chartOf(rows, maxPoints)
	case "pie":
		return pieOf(rows)
	}
	return c, false
}

// curve describes a line chart: its name, its first and its last value.
func (c chart) curve() string {
	return fmt.Sprintf("curve of %s, from %s to %s", text.OneLine(c.Name), c.Points[0].text(), c.Points[len(c.Points)-1].text())
}

// pieOf makes a pie chart. The smallest values are combined into one part.
func pieOf(rows agentdb.Rows) (chart, bool) {
	c, ok := chartOf(rows, maxPoints)
	if !ok || len(c.Points) <= maxSlices {
		return c, ok
	}

	slices.SortStableFunc(c.Points, func(a, b point) int { return cmp.Compare(b.Value, a.Value) })
	rest := 0.0
	for _, p := range c.Points[maxSlices-1:] {
		rest += p.Value
	}
	c.Points = append(c.Points[:maxSlices-1:maxSlices-1], point{Label: "all the rest", Shown: cellText(rest), Value: rest})
	return c, true
}

// numeric returns a value of a row as a number.
func numeric(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}

// cellText returns a value of a row as text.
func cellText(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case float64:
		return strconv.FormatFloat(text.Decimal(x), 'f', -1, 64)
	case int64:
		return strconv.FormatInt(x, 10)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}
