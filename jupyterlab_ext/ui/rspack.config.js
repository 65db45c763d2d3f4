// Numbered modules would depend on the folder that this is built in; named ones make the build the same everywhere.
module.exports = { optimization: { moduleIds: 'named', chunkIds: 'named' } };
