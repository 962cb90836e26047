// timeout
export async function execute() {
	for (;;) {
		try { for (;;) {} } catch { } finally { for (;;) {} }
	}
}
