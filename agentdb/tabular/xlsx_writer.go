package tabular

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxCellText  = 32_767                // in UTF-16 code units
	exactInteger = 1_000_000_000_000_000 // spreadsheets keep 15 digits of a number
)

// workbookParts are the parts of a workbook other than its sheet. The first row of the sheet is
// bold and frozen.
var workbookParts = []struct{ name, content string }{
	{"[Content_Types].xml", `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/><Override PartName="/xl/styles.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"/></Types>`},
	{"_rels/.rels", `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>`},
	{"xl/workbook.xml", `<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="Rows" sheetId="1" r:id="rId1"/></sheets></workbook>`},
	{"xl/_rels/workbook.xml.rels", `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>`},
	{"xl/styles.xml", `<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font><font><b/><sz val="11"/><name val="Calibri"/></font></fonts><fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills><borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="2"><xf xfId="0"/><xf xfId="0" fontId="1" applyFont="1"/></cellXfs></styleSheet>`},
}

const sheetBegin = `<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>`

// xlsxWriter writes a workbook with one sheet as a stream. Strings are marked as text, so that no
// program computes them as formulas.
type xlsxWriter struct {
	archive *zip.Writer
	sheet   io.Writer
	columns []string
	number  int // row number
	out     bytes.Buffer
}

func newXLSXWriter(to io.Writer, columns []string) (*xlsxWriter, error) {
	e := &xlsxWriter{archive: zip.NewWriter(to), columns: columns}
	for _, part := range workbookParts {
		w, err := e.archive.Create(part.name)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, xml.Header+part.content); err != nil {
			return nil, err
		}
	}

	var err error
	if e.sheet, err = e.archive.Create("xl/worksheets/sheet1.xml"); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(e.sheet, xml.Header+sheetBegin); err != nil {
		return nil, err
	}

	headings := make([]any, len(columns))
	for i, name := range columns {
		headings[i] = name
	}

	return e, e.write(headings, ` s="1"`)
}

func (e *xlsxWriter) Row(values []any) error { return e.write(values, "") }

func (e *xlsxWriter) write(values []any, style string) error {
	e.number++
	e.out.Reset()
	fmt.Fprintf(&e.out, `<row r="%d">`, e.number)

	for i, v := range values {
		number := ""
		switch v := v.(type) {
		case nil:
			continue
		case int64:
			// Write a longer integer as text, because spreadsheets would drop its last digits.
			if number = strconv.FormatInt(v, 10); v >= exactInteger || v <= -exactInteger {
				if err := e.text(i, style, number); err != nil {
					return err
				}
				continue
			}
		case float64:
			number = floatText(v)
		case string:
			if err := e.text(i, style, v); err != nil {
				return err
			}
			continue
		}

		fmt.Fprintf(&e.out, `<c r="%s%d"><v>%s</v></c>`, columnName(i), e.number, number)
	}

	e.out.WriteString("</row>")
	_, err := e.sheet.Write(e.out.Bytes())
	return err
}

func (e *xlsxWriter) text(i int, style, text string) error {
	// A text has at most as many UTF-16 units as bytes, so short texts need no count.
	if len(text) > maxCellText && len(utf16.Encode([]rune(text))) > maxCellText {
		return invalid("format", "row %d has a text of more than %d characters in %s, which no spreadsheet cell can hold; export as csv or json", e.number-1, maxCellText, e.columns[i])
	}

	fmt.Fprintf(&e.out, `<c r="%s%d"%s t="inlineStr"><is><t xml:space="preserve">`, columnName(i), e.number, style)
	if err := xml.EscapeText(&e.out, []byte(escapeXLSX(text))); err != nil {
		return err
	}

	e.out.WriteString("</t></is></c>")
	return nil
}

func (e *xlsxWriter) Close() error {
	if _, err := io.WriteString(e.sheet, "</sheetData></worksheet>"); err != nil {
		return err
	}
	return e.archive.Close()
}

func (e *xlsxWriter) Warnings() []string { return nil }

// Spreadsheets write characters that XML does not allow as _x0007_. A text that already has that
// form gets its underscore escaped in the same way.
var (
	xlsxEscape  = regexp.MustCompile(`_x[0-9A-Fa-f]{4}_`)
	xlsxControl = regexp.MustCompile(`[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]`)
)

func escapeXLSX(text string) string {
	text = xlsxEscape.ReplaceAllStringFunc(text, func(s string) string { return "_x005F" + s })
	return xlsxControl.ReplaceAllStringFunc(text, func(s string) string {
		r, _ := utf8.DecodeRuneInString(s)
		return fmt.Sprintf("_x%04X_", r)
	})
}

func unescapeXLSX(text string) string {
	return xlsxEscape.ReplaceAllStringFunc(text, func(s string) string {
		code, err := strconv.ParseUint(s[2:6], 16, 16)
		if err != nil || utf16.IsSurrogate(rune(code)) {
			return s
		}
		return string(rune(code))
	})
}
