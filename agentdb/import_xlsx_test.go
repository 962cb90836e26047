package agentdb_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agentdb/dberr"
	"rouse/agentdb/transfer"
)

const relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"

// workbook builds a workbook file from the usual parts. Some parts are replaced, or omitted if
// the replacement is empty.
func workbook(t testing.TB, sheet string, parts map[string]string) string {
	t.Helper()
	all := map[string]string{
		"xl/workbook.xml": `<workbook xmlns:r="` + relation + `"><sheets><sheet name="Secret" state="hidden" r:id="rId2"/><sheet name="Main" r:id="rId1"/><sheet name="Notes" r:id="rId2"/></sheets></workbook>`,
		"xl/_rels/workbook.xml.rels": `<Relationships><Relationship Id="rId1" Type="` + relation + `/worksheet" Target="worksheets/sheet1.xml"/>` +
			`<Relationship Id="rId2" Type="` + relation + `/worksheet" Target="/xl/worksheets/sheet2.xml"/></Relationships>`,
		"xl/styles.xml": `<styleSheet><numFmts><numFmt numFmtId="164" formatCode="[$-407]d. mmmm yyyy;@"/><numFmt numFmtId="165" formatCode="0.00&quot; days&quot;"/><numFmt numFmtId="166" formatCode="[h]:mm"/></numFmts>` +
			`<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/><xf numFmtId="166"/><xf numFmtId="22"/></cellXfs></styleSheet>`,
		"xl/sharedStrings.xml":     `<sst><si><t>name</t></si><si><r><t>rich </t></r><r><t>text</t></r><rPh><t>no</t></rPh></si><si><t xml:space="preserve"> 007</t></si></sst>`,
		"xl/worksheets/sheet1.xml": `<worksheet><dimension ref="A1:XFD1048576"/><sheetData>` + sheet + `</sheetData><mergeCells><mergeCell ref="A2:A3"/></mergeCells></worksheet>`,
		"xl/worksheets/sheet2.xml": `<worksheet><sheetData/></worksheet>`,
	}

	maps.Copy(all, parts)
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] == "" {
			continue
		}

		part, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte(all[name])); err != nil {
			t.Fatal(err)
		}
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return b.String()
}

// OSA-58: imports the first visible sheet, with the types that its cells show.
func TestImportXLSX(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sheet, sql, want string }{
		"types": {`<row r="3"><c r="A3" t="s"><v>0</v></c><c r="B3" t="inlineStr"><is><t>day</t></is></c><c r="C3" t="str"><v>n</v></c><c r="D3" t="str"><v>ok</v></c></row>` +
			`<row r="4"><c r="A4" t="s"><v>1</v></c><c r="B4" s="1"><v>46053</v></c><c r="C4"><v>3</v></c><c r="D4" t="b"><v>1</v></c></row>` +
			`<row r="6"><c r="A6" t="s"><v>2</v></c><c r="B6" s="2"><v>59</v></c><c r="C6"><v>0.1</v></c><c r="D6" t="b"><v>0</v></c></row>`,
			"select name, day, n, typeof(n), ok, typeof(ok) from t order by id", `[["rich text","2026-01-31",3,"real",1,"integer"],[" 007","1900-02-28",0.1,"real",0,"integer"]]`},
		"dates": {`<row><c t="str"><v>a</v></c></row><row><c s="5"><v>46053.5</v></c></row><row><c s="4"><v>1.25</v></c></row><row><c s="3"><v>5</v></c></row><row><c s="1"><v>0.75</v></c></row><row><c s="1"><v>-1</v></c></row>`,
			"select a from t order by id", `[["2026-01-31T12:00:00"],["30:00:00"],["5"],["18:00:00"],["-1"]]`},
		"without places": {`<row><c t="str"><v>a</v></c><c/><c t="str"><v>c</v></c></row><row><c><v>1</v></c><c/><c><v>2</v></c></row>`,
			"select a, column_2, c from t", `[[1,null,2]]`},
		"merged, empty and error cells": {`<row r="1"><c r="A1" t="str"><v>a</v></c><c r="B1" t="str"><v>b</v></c></row><row r="2"><c r="A2"><v>1</v></c><c r="B2" t="e"><v>#DIV/0!</v></c></row><row r="3"><c r="A3"/><c r="B3"><v>2</v></c></row><row r="4"><c r="A4" s="1"/></row>`,
			"select a, b from t order by id", `[[1,"#DIV/0!"],[null,"2"]]`},
		"results of formulas": {`<row><c t="str"><v>a</v></c></row><row><c><f>1+1</f><v>2</v></c></row>`, "select a, typeof(a) from t", `[[2,"integer"]]`},
		"with prefixes":       {`<x:row><x:c t="str"><x:v>a</x:v></x:c></x:row><x:row><x:c><x:v>1</x:v></x:c></x:row>`, "select a from t", `[[1]]`},
		"odd characters":      {`<row><c t="str"><v>a</v></c></row><row><c t="str"><v>x_x000D_y_x005F_x0041_&amp;</v></c></row>`, "select a from t", `[["x\ry_x0041_\u0026"]]`},
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			in := load(t, db, "f.xlsx", workbook(t, c.sheet, nil))
			if got := ask(t, db, c.sql); got != c.want || in.RowsSkipped != 0 {
				t.Errorf("%s\nwant %s\n%+v", got, c.want, in)
			}
			if len(in.Warnings) != 1 || !strings.Contains(in.Warnings[0], "the sheet Main was read; there are also Secret, Notes") {
				t.Errorf("%q", in.Warnings)
			}
		})
	}

	db := fresh(t)
	in := load(t, db, "f", workbook(t, `<row><c><v>7</v></c></row>`, map[string]string{"xl/sharedStrings.xml": "", "xl/styles.xml": ""}), func(s *transfer.ImportSpec) { s.NoHeader = true })
	if ask(t, db, "select column_1 from t") != "[[7]]" || in.RowsImported != 1 {
		t.Errorf("by its content, without a header: %+v", in)
	}

	mac := workbook(t, `<row><c t="str"><v>a</v></c></row><row><c s="1"><v>0</v></c></row>`, map[string]string{
		"xl/workbook.xml": `<workbook xmlns:r="` + relation + `"><workbookPr date1904="1"/><sheets><sheet name="Main" r:id="rId1"/></sheets></workbook>`})
	load(t, db, "f.xlsx", mac, func(s *transfer.ImportSpec) { s.Table = "mac" })
	if got := ask(t, db, "select a from mac"); got != `[["1904-01-01"]]` {
		t.Error(got)
	}

	in = load(t, db, "f.xlsx", workbook(t, `<row><c t="str"><v>a</v></c></row><row><c><v>1</v></c></row><row><c><f>A1</f></c></row><row><c/><c><v>2</v></c></row><row><c><v>3</v></c></row><row><c><v>4</v></c></row>`, nil), func(s *transfer.ImportSpec) { s.Table = "left" })
	if in.RowsImported != 3 || len(in.SampleErrors) != 2 || !strings.Contains(in.SampleErrors[0], "line 3: the cell  holds a formula") || !strings.Contains(in.SampleErrors[1], "line 4: there is a value in column B") {
		t.Errorf("%+v", in)
	}
}

// claiming returns a workbook file that declares the given unpacked size.
func claiming(t testing.TB, size uint64) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	const content = "<workbook/>"
	part, err := w.CreateRaw(&zip.FileHeader{Name: "xl/workbook.xml", CompressedSize64: uint64(len(content)), UncompressedSize64: size})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return b.String()
}

// A hostile or broken workbook is rejected with a clear message and at low cost.
func TestImportXLSXRefuses(t *testing.T) {
	t.Parallel()
	row := `<row><c t="str"><v>a</v></c></row>`
	for name, c := range map[string]struct{ content, part string }{
		"no zip":          {"PK\x03\x04 nothing", "not an .xlsx file"},
		"no workbook":     {workbook(t, row, map[string]string{"xl/workbook.xml": ""}), ".ods are not read"},
		"no sheet":        {workbook(t, row, map[string]string{"xl/worksheets/sheet1.xml": ""}), "no sheet that can be seen"},
		"empty":           {workbook(t, `<row/>`, nil), "the sheet Main of f.xlsx is empty"},
		"cut off":         {workbook(t, row, map[string]string{"xl/worksheets/sheet1.xml": `<worksheet><sheetData>` + row}), "is cut off here"},
		"cut in a row":    {workbook(t, row, map[string]string{"xl/worksheets/sheet1.xml": `<worksheet><sheetData>` + row + `<row><c>`}), "is cut off here"},
		"damaged":         {workbook(t, row+`<row <`, nil), "is damaged"},
		"unknown text":    {workbook(t, row+`<row><c t="s"><v>9</v></c></row>`, nil), "names a text that the file does not hold"},
		"a far column":    {workbook(t, row+`<row r="2"><c r="ZZZZZZZZ2"><v>1</v></c></row>`, nil), "a column that no sheet has"},
		"spans":           {workbook(t, row+`<row r="99999999999" spans="1:2000000000"><c r="B1"><v>1</v></c></row>`, nil), "column B"},
		"a large part":    {claiming(t, 1<<40), "when unpacked"},
		"a large book":    {claiming(t, 20<<20), "far less"},
		"a lie":           {claiming(t, 1), "damaged"},
		"a wide table":    {workbook(t, `<row><c r="XFD1"><v>1</v></c></row>`, nil), "more than 1990 columns"},
		"broken contents": {workbook(t, row, map[string]string{"xl/workbook.xml": "<workbook>"}), "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryLoad(fresh(t), "f.xlsx", c.content)
			wantError(t, err, "invalid_args", "path", c.part)
		})
	}
}

func FuzzXLSX(f *testing.F) {
	for _, seed := range []string{`<row r="1"><c r="A1" t="s"><v>1</v></c></row><row><c s="1"><v>5</v></c></row>`, `<row><c t="inlineStr"><is><t>x</t></is></c></row>`, `<row><c><f>`, `<row r="-1"><c r="1A"/></row>`, ""} {
		f.Add(seed, `<numFmts><numFmt numFmtId="14" formatCode="yy"/></numFmts><cellXfs><xf/><xf numFmtId="14"/></cellXfs>`)
	}

	dir, n := f.TempDir(), 0
	f.Fuzz(func(t *testing.T, sheet, styles string) {
		n++
		db := open(t, filepath.Join(dir, fmt.Sprint(n%20)))
		_, err := tryLoad(db, "f.xlsx", workbook(t, sheet, map[string]string{"xl/styles.xml": "<styleSheet>" + styles + "</styleSheet>"}), func(s *transfer.ImportSpec) { s.Table = fmt.Sprint("t", n) })
		var bad *dberr.Error
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("%q broke the host: %v", sheet, err)
		}
	})
}
