package tabular

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func readCSV(data string, comma byte) (records [][]string, lines []int, err error) {
	r := newCSV(data, comma)
	for {
		if err := r.Next(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return records, lines, err
		}

		records = append(records, append([]string(nil), r.cells...))
		lines = append(lines, r.start)
	}
}

func TestCSV(t *testing.T) {
	for name, c := range map[string]struct {
		data  string
		want  [][]string
		lines []int
	}{
		"plain":               {"a,b\n1,2\n", [][]string{{"a", "b"}, {"1", "2"}}, []int{1, 2}},
		"no last line ending": {"a,b\n1,2", [][]string{{"a", "b"}, {"1", "2"}}, []int{1, 2}},
		"CRLF":                {"a,b\r\n1,2\r\n", [][]string{{"a", "b"}, {"1", "2"}}, []int{1, 2}},
		"CR alone":            {"a,b\r1,2\r", [][]string{{"a", "b"}, {"1", "2"}}, []int{1, 2}},
		"CR, a last LF":       {"a,b\r1,2\r3,4\r\n", [][]string{{"a", "b"}, {"1", "2"}, {"3", "4"}}, []int{1, 2, 3}},
		"CR, LF in a cell":    {"a,b\r1,\"x\n\"\"y\"\r3,4\r", [][]string{{"a", "b"}, {"1", "x\n\"y"}, {"3", "4"}}, []int{1, 2, 3}},
		"CR in a cell":        {"a,b\nx\ry,2\n3,4\n", [][]string{{"a", "b"}, {"x\ry", "2"}, {"3", "4"}}, []int{1, 2, 3}},
		"quoted":              {"\"a,1\",\"b\"\"c\"\n", [][]string{{"a,1", `b"c`}}, []int{1}},
		"several lines":       {"a,\"x\r\ny\"\nb,c\n", [][]string{{"a", "x\r\ny"}, {"b", "c"}}, []int{1, 3}},
		"quote in a cell":     {"5\" pipe,x\n", [][]string{{`5" pipe`, "x"}}, []int{1}},
		"blank lines":         {"\na,b\n\n\r\n1,2\n", [][]string{{"a", "b"}, {"1", "2"}}, []int{2, 5}},
		"empty cells":         {",\n,,\n", [][]string{{"", ""}, {"", "", ""}}, []int{1, 2}},
		"quoted empty line":   {"\"\"\n", [][]string{{""}}, []int{1}},
		"comma at the end":    {"a,", [][]string{{"a", ""}}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, lines, err := readCSV(c.data, ',')
			if err != nil || !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(lines, c.lines) {
				t.Errorf("got %q at lines %v, error %v; want %q at %v", got, lines, err, c.want, c.lines)
			}
		})
	}
}

func TestCSVNamesThePlaceOfAFault(t *testing.T) {
	for data, want := range map[string]string{
		"ö,\"ü\n":           "line 1, column 3: a quote is opened",
		"a,b\n1,\"x\ny\n":   "line 2, column 3: a quote is opened",
		"a,b\n1,\"x\"y\n":   `line 2, column 6: "y" follows a closing quote`,
		"a,b\n\"1\n2\"ü,\n": `line 3, column 3: "ü" follows`,
	} {
		if _, _, err := readCSV(data, ','); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %s…", data, err, want)
		}
	}
}

// TestCSVReadsWhatIsWritten checks that all output of encoding/csv is read back unchanged,
// including line endings inside cells.
func TestCSVReadsWhatIsWritten(t *testing.T) {
	cell := rapid.StringMatching(`[a-z0-9 ,;"\t\r\nü]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(2, 4).Draw(t, "width")
		records := rapid.SliceOfN(rapid.SliceOfN(cell, width, width), 1, 8).Draw(t, "records")
		records[0][0] = "a" // with no \n in the file, a lone \r could end a record
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		w.Comma = rune(rapid.SampledFrom([]byte{',', ';', '\t'}).Draw(t, "comma"))
		if err := w.WriteAll(records); err != nil {
			t.Fatal(err)
		}

		got, _, err := readCSV(b.String(), byte(w.Comma))
		if err != nil || !reflect.DeepEqual(got, records) {
			t.Fatalf("%q: got %q, %v; want %q", b.String(), got, err, records)
		}
	})
}

func TestGuessSeparator(t *testing.T) {
	for data, want := range map[string]byte{
		"a,b\n1;2": ',', "a;b\n1,2;3": ';', "a\tb\n": '\t', "a\n1;2": ',', "": ',',
		"a|b\n1,5|2\n": '|', "date;amount, EUR;to\n1;2,50;x\n1;3;y\n": ';', "id,tags\n1,a;b\n2,c;d\n": ',', "\"a;b\",c\n\"1;2\",3\n": ',',
	} {
		if got := guessSeparator(data); got != want {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	}
}

func TestDecode(t *testing.T) {
	for name, c := range map[string]struct {
		data, want, fault string
		guessed           bool
	}{
		"plain":           {data: "a,ü", want: "a,ü"},
		"UTF-8 mark":      {data: "\ufeffa,b", want: "a,b"},
		"UTF-16":          {data: "\xff\xfea\x00,\x00\xfc\x00", want: "a,ü"},
		"UTF-16 big":      {data: "\xfe\xff\x00a\x00,\x00\xfc", want: "a,ü"},
		"UTF-16 cut":      {data: "\xff\xfea", fault: "line 1: the file says it is UTF-16"},
		"Windows-1252":    {data: "a\nb\nGr\xf6\xdfe 5\x80\n", want: "a\nb\nGröße 5€\n", guessed: true},
		"damaged UTF-8":   {data: "ü\nb\nGr\xf6\xdfe\n", fault: "line 3, column 3: the text is not UTF-8"},
		"no letters":      {data: "a\n\x81\n", fault: "line 2, column 1: the text is not UTF-8"},
		"NUL":             {data: "a\n\x00b", fault: "line 2, column 1: there is a NUL"},
		"unmarked UTF-16": {data: "a\x00,\x00", fault: "line 1, column 2: there is a NUL"},
		"a replaced rune": {data: "a\ufffd", want: "a\ufffd"},
	} {
		got, encoding, err := Decode(c.data, true)
		switch {
		case c.fault != "" && (err == nil || !strings.HasPrefix(err.Error(), c.fault)):
			t.Errorf("%s: error %v, want %s…", name, err, c.fault)
		case c.fault == "" && (err != nil || got != c.want || c.guessed != (encoding == Windows1252)):
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func FuzzCSV(f *testing.F) {
	for _, seed := range []string{"a,b\n1,2\n", "\"a\"\"b\",\"c\r\nd\"\r\n", "\"", "\"a\"b", "a\rb\r", "\n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		records, lines, err := readCSV(data, ',')
		if err != nil {
			return
		}

		for i, line := range lines {
			if line < 1 || i > 0 && line <= lines[i-1] || line > 1+strings.Count(data, "\n")+strings.Count(data, "\r") {
				t.Fatalf("%q: record %d is said to be on line %d", data, i, line)
			}
		}

		// Quoting all cells must give the same records.
		var b strings.Builder
		b.WriteString("x\n")

		for _, record := range records {
			for i, cell := range record {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(`"` + strings.ReplaceAll(cell, `"`, `""`) + `"`)
			}
			b.WriteByte('\n')
		}

		again, _, err := readCSV(b.String(), ',')
		if err != nil || !reflect.DeepEqual(again[1:], records) && len(records) > 0 {
			t.Fatalf("%q: %q became %q (%v)", data, records, again, err)
		}
	})
}
