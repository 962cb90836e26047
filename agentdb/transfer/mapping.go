package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/tabular"
	"rouse/internal/storage/sqlite"
)

// mapping maps the columns of a file to the columns of a table.
type mapping struct {
	table       *schema.Table
	columns     []string // mapped columns of the table
	fileColumns []int    // indexes of their columns in the file
	keys        []string // key columns of an upsert, otherwise nil
	dropped     []string // headings without a column

	affinity                   []tabular.Affinity
	isKey, isRowID, hasDefault []bool
	isNumber                   []bool // text that is not a number does not fit
	lossy                      []lossyNumbers
}

// mapTable finds or creates the target table of an import and maps the file's columns to it.
func (s *Source) mapTable(ctx context.Context, tx *sqlite.Tx, by changelog.By, spec ImportSpec) (m *mapping, created bool, err error) {
	t, err := schema.NeedTable(ctx, sqlite.Prepared{Tx: tx}, spec.Table)
	if err != nil {
		var missing *dberr.Error
		if spec.NoCreate || !errors.As(err, &missing) || missing.Kind != dberr.KindNotFound {
			return nil, false, err
		}
		if t, err = s.createTable(ctx, tx, by, spec); err != nil {
			return nil, false, err
		}
		created = true
	}
	if m, err = s.mapTo(t); err != nil {
		return nil, false, err
	}

	if spec.Mode == modeUpsert {
		if err := m.ensureUnique(ctx, tx, by, spec); err != nil {
			return nil, false, err
		}
	}

	return m, created, nil
}

// createTable creates a table from the file's headings and the kinds of its values.
func (s *Source) createTable(ctx context.Context, tx *sqlite.Tx, by changelog.By, spec ImportSpec) (*schema.Table, error) {
	table := schema.TableSpec{Name: spec.Table, Purpose: "Imported from " + s.name}
	for i, name := range sqltext.ToColumns(s.Headings) {
		// Skip the host's columns, which an exported file can have. Every new table gets them
		// anyway.
		if sqltext.IsHostColumn(name) || !s.wanted(i) {
			continue
		}

		var k tabular.Kind
		if i < len(s.Kinds) {
			k = s.Kinds[i]
		}

		table.Columns = append(table.Columns, schema.Column{Name: name, Type: columnOf(k)})
	}

	statements, err := table.Statements()
	if err != nil {
		return nil, err
	}
	if _, err := schema.CreateTable(ctx, tx, by, table, statements); err != nil {
		return nil, err
	}

	return schema.NeedTable(ctx, sqlite.Prepared{Tx: tx}, spec.Table)
}

func (s *Source) wanted(i int) bool {
	return s.only == nil || sqltext.ContainsFold(s.only, s.Headings[i])
}

// mapTo finds the column of each heading: by the name that a new table would give it, or by the
// unchanged heading.
func (s *Source) mapTo(t *schema.Table) (*mapping, error) {
	m := &mapping{table: t}
	for i, name := range sqltext.ToColumns(s.Headings) {
		c := t.Column(name)
		if c == nil {
			c = t.Column(s.Headings[i])
		}
		// Two headings can give the same name. The first one gets the column.
		if c == nil || slices.Contains(m.columns, c.Name) {
			m.dropped = append(m.dropped, s.Headings[i])
			continue
		}

		if !s.wanted(i) {
			continue
		}

		m.columns = append(m.columns, c.Name)
		m.fileColumns = append(m.fileColumns, i)
		m.affinity = append(m.affinity, affinityOf(c.Type))
		m.isRowID = append(m.isRowID, c.Name == t.RowKey)
		m.hasDefault = append(m.hasDefault, c.Default != nil)
		m.isNumber = append(m.isNumber, isNumber(c.Type))
	}

	m.lossy = make([]lossyNumbers, len(m.columns))
	m.isKey = make([]bool, len(m.columns))
	if len(m.columns) == 0 {
		return nil, dberr.Invalid("table", "%s has the columns %s and the table %s has %s: none of them matches. Import into another table, or name the columns of the file with columns",
			s.name, strings.Join(s.Headings, ", "), t.Name, strings.Join(t.ColumnNames(), ", "))
	}

	return m, nil
}

// ensureUnique sets the key columns and creates a unique index over them unless there is one.
func (m *mapping) ensureUnique(ctx context.Context, tx *sqlite.Tx, by changelog.By, spec ImportSpec) error {
	for i, key := range spec.KeyColumns {
		at := slices.IndexFunc(m.columns, func(c string) bool { return strings.EqualFold(c, key) || strings.EqualFold(c, sqltext.ToColumn(key)) })
		if at < 0 {
			return dberr.Invalid(fmt.Sprintf("key_columns[%d]", i), "the key column %q is not among the imported columns%s", key, sqltext.DidYouMean(key, m.columns))
		}
		if m.isKey[at] {
			return dberr.Invalid(fmt.Sprintf("key_columns[%d]", i), "the key column %s is named twice", key)
		}

		m.isKey[at] = true
		m.keys = append(m.keys, m.columns[at])
	}
	return m.table.EnsureUnique(ctx, tx, by, m.keys)
}
