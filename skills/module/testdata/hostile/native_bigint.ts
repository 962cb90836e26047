// timeout memory threw returned
export async function execute() { return (3n ** (1n << 22n)).toString().length; }
