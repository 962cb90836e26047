package file_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/tool"
)

// spreadsheet creates an .xlsx file with sheets of rows. A row is the XML of its cells.
func spreadsheet(t *testing.T, sheets map[string]string, order ...string) string {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	put := func(name, text string) {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}

	var book, links strings.Builder
	for i, name := range order {
		fmt.Fprintf(&book, `<sheet name="%s" sheetId="%d" r:id="r%d"/>`, name, i+1, i)
		fmt.Fprintf(&links, `<Relationship Id="r%d" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/s%d.xml"/>`, i, i)
		put(fmt.Sprintf("xl/worksheets/s%d.xml", i), `<worksheet><sheetData>`+sheets[name]+`</sheetData></worksheet>`)
	}

	put("xl/workbook.xml", `<workbook xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets>`+book.String()+`</sheets></workbook>`)
	put("xl/_rels/workbook.xml.rels", `<Relationships>`+links.String()+`</Relationships>`)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	return out.String()
}

// TestReadSheet checks that the first rows of a spreadsheet are shown, and that damaged or hostile
// files are refused with a message (OSA-31).
func TestReadSheet(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 60 {
		fmt.Fprintf(&many, `<row r="%d">%s</row>`, i+1, strings.Repeat(fmt.Sprintf("<c><v>%d</v></c>", i), 40))
	}

	good := spreadsheet(t, map[string]string{"Data": `<row r="1"><c r="A1" t="inlineStr"><is><t>name</t></is></c><c r="C1"><v>4.5</v></c></row><row r="7"><c r="A7" t="b"><v>1</v></c></row>`, "Many": many.String()}, "Data", "Many")
	_, call := setup(t, map[string]string{
		"a.txt": "name", "a.xlsx": good, "cut.xlsx": good[:len(good)/2], "text.xlsx": "no spreadsheet", "wide.xlsx": spreadsheet(t, map[string]string{"S": `<row><c r="ZZZZ1"><v>1</v></c></row>`}, "S"),
		"open.xlsx": spreadsheet(t, map[string]string{"S": `<row><c><v>1</v></c>`}, "S"), "none.xlsx": spreadsheet(t, nil), "huge.xlsx": strings.Repeat("x", 6<<20),
		"bomb.xlsx": spreadsheet(t, map[string]string{"S": "<row><c><v>" + strings.Repeat("9", 8<<20) + "</v></c></row>"}, "S"),
	})

	for name, c := range map[string]struct {
		args map[string]any
		want string
	}{
		"first":  {map[string]any{}, `Data [Data Many] [map[cells:[name  4.5] row:1] map[cells:[true] row:7]] false`},
		"named":  {map[string]any{"sheet_name": "Many", "max_rows": 1, "max_columns": 2}, `Many [Many Data] [map[cells:[0 0] row:1]] true`},
		"narrow": {map[string]any{"max_columns": 1}, `Data [Data Many] [map[cells:[name] row:1] map[cells:[true] row:7]] true`},
	} {
		c.args["path"] = "a.xlsx"
		e, got := call("file_read", c.args)
		if text := fmt.Sprint(got["sheet"], " ", got["sheets"], " ", got["rows"], " ", got["truncated"]); !e.OK || text != c.want {
			t.Errorf("%s: %+v %s", name, e, text)
		}
	}

	for most, want := range map[int][2]int{0: {8, 8}, 1000: {50, 30}} {
		_, got := call("file_read", map[string]any{"path": "a.xlsx", "sheet_name": "Many", "max_rows": most, "max_columns": most})
		rows := got["rows"].([]any)
		if cells := rows[0].(map[string]any)["cells"].([]any); len(rows) != want[0] || len(cells) != want[1] {
			t.Errorf("at most %d: %d rows of %d columns, want %v", most, len(rows), len(cells), want)
		}
	}

	for path, say := range map[string]string{"cut.xlsx": "cut off", "text.xlsx": "cannot be shown: it is not an .xlsx file", "open.xlsx": "damaged", "none.xlsx": "no sheet", "huge.xlsx": "more than"} {
		if e, _ := call("file_read", map[string]any{"path": path}); e.Kind != tool.KindRejected || !strings.Contains(e.Message, say) {
			t.Errorf("%s: %+v", path, e)
		}
	}

	if e, _ := call("file_read", map[string]any{"path": "a.xlsx", "sheet_name": "Other"}); e.Kind != tool.KindInvalidArgs || e.Field != "sheet_name" || e.Expected != "Data, Many" {
		t.Errorf("%+v", e)
	}
	for _, path := range []string{"a.txt", "."} {
		if e, _ := call("file_read", map[string]any{"path": path, "sheet_name": "Data"}); e.Kind != tool.KindInvalidArgs || e.Field != "sheet_name" {
			t.Errorf("%s has no sheets: %+v", path, e)
		}
	}

	for _, path := range []string{"bomb.xlsx", "wide.xlsx"} { // the message or preview must be short
		if e, _ := call("file_read", map[string]any{"path": path}); len(e.Result)+len(e.Message) > 2000 {
			t.Errorf("%s: %d bytes", path, len(e.Result))
		}
	}
}
