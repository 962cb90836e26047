package sqltext

import (
	"fmt"
)

// Now is the present instant as the host columns hold it (C-3).
const Now = "strftime('%Y-%m-%dT%H:%M:%fZ','now')"

// TouchTrigger keeps _updated_at true whoever updates. The inner update does not fire it
// again: recursive triggers are off, and the condition no longer holds.
func TouchTrigger(table string) string {
	return fmt.Sprintf("CREATE TRIGGER %s AFTER UPDATE ON %s FOR EACH ROW WHEN new.%s IS old.%[3]s\nBEGIN\n  UPDATE %[2]s SET %[3]s = %s WHERE rowid = new.rowid;\nEND",
		Quote("_touch_"+table), Quote(table), Quote(ColumnUpdated), Now)
}
