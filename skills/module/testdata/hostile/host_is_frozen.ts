// returned: "frozen"
export async function execute(args: unknown, host: any) {
	const all = [host, host.storage, host.storage.get, host.log, host.log.info, host.config, host.config.deep];
	for (const one of all) if (!Object.isFrozen(one)) return "not frozen: " + String(one);
	try { host.storage.get = () => 1; return "set"; } catch { }
	try { host.vault = {}; return "added"; } catch { }
	try { delete host.log; return "deleted"; } catch { }
	try { Object.setPrototypeOf(host, { vault: 1 }); return "new prototype"; } catch { }
	host.constructor.prototype.vault = 1;
	return Object.hasOwn(host, "vault") ? "own" : "frozen";
}
