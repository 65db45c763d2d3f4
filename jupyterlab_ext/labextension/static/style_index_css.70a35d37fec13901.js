"use strict";(self.rspackChunkcomputemesh_lab=self.rspackChunkcomputemesh_lab||[]).push([["style_index_css"],{"./node_modules/css-loader/dist/cjs.js!./style/index.css"(e,t,o){var s=o("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),r=o.n(s),n=o("./node_modules/css-loader/dist/runtime/api.js"),i=o.n(n),a=o("./node_modules/css-loader/dist/cjs.js!./style/table.css"),l=i()(r());l.i(a.A),l.push([e.id,`/* The mesh's panel. Colours are the theme's, so that it follows light, dark and high-contrast themes. */

.jp-Mesh {
  --mesh-ready: var(--jp-success-color1);
  --mesh-busy: var(--jp-brand-color1);
  --mesh-warn: var(--jp-warn-color1);
  --mesh-quiet: var(--jp-ui-font-color2);
  --mesh-line: var(--jp-border-color2);

  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  container-type: inline-size;
  display: flex;
  flex-direction: column;
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.4;
  min-width: 220px;
}

.jp-Mesh p,
.jp-Mesh dl,
.jp-Mesh dd {
  margin: 0;
}

.jp-Mesh code {
  background: var(--jp-layout-color2);
  border-radius: 3px;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  padding: 1px 4px;
  user-select: all;
}

.jp-Mesh-spoken {
  clip-path: inset(50%);
  height: 1px;
  overflow: hidden;
  position: absolute;
  white-space: nowrap;
  width: 1px;
}

/* ---- title */

.jp-Mesh-title {
  align-items: center;
  display: flex;
  gap: 8px;
  padding: 10px 12px 8px;
}

.jp-Mesh-title h2 {
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
  letter-spacing: 0.4px;
  margin: 0;
}

.jp-Mesh-size,
.jp-Mesh-waiting {
  color: var(--mesh-quiet);
}

.jp-Mesh-live {
  align-items: center;
  border: 1px solid var(--mesh-line);
  border-radius: 9px;
  color: var(--mesh-quiet);
  display: inline-flex;
  font-size: var(--jp-ui-font-size0);
  gap: 5px;
  margin-left: auto;
  padding: 0 8px;
}

.jp-Mesh-live::before {
  background: var(--mesh-ready);
  border-radius: 50%;
  content: '';
  height: 6px;
  width: 6px;
}

.jp-Mesh-live.jp-Mesh-off::before {
  background: none;
  box-shadow: inset 0 0 0 1.5px var(--mesh-warn);
}

/* ---- head */

.jp-Mesh-body {
  display: flex;
  flex: 1 1 0;
  flex-direction: column;
  min-height: 0;
}

.jp-Mesh-old .jp-Mesh-head,
.jp-Mesh-old .jp-Mesh-table {
  filter: grayscale(1);
  opacity: 0.72;
}

.jp-Mesh-head {
  border-bottom: 1px solid var(--mesh-line);
  display: flex;
  flex-direction: column;
  gap: 10px;
  padding: 2px 12px 12px;
}

.jp-Mesh-shares {
  background: var(--jp-layout-color3);
  border-radius: 4px;
  display: flex;
  height: 8px;
  overflow: hidden;
}

.jp-Mesh-shares span {
  flex-basis: 0;
  transition: flex-grow 300ms ease;
}

.jp-Mesh-fill-ready {
  background: var(--mesh-ready);
}

.jp-Mesh-fill-busy {
  background: var(--mesh-busy);
}

.jp-Mesh-fill-offline {
  background: var(--jp-layout-color4);
}

.jp-Mesh-legend {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
  gap: 2px 10px;
  margin-top: 6px;
}

.jp-Mesh-legend span {
  align-items: center;
  display: inline-flex;
  gap: 3px;
}

.jp-Mesh-none {
  color: var(--mesh-quiet);
}

.jp-Mesh-figures {
  display: grid;
  gap: 6px;
  grid-template-columns: repeat(4, auto);
  justify-content: space-between;
}

@container (max-width: 210px) {
  .jp-Mesh-figures {
    grid-template-columns: repeat(2, auto);
  }
}

.jp-Mesh-figure {
  display: flex;
  flex-direction: column-reverse;
  justify-content: flex-end;
  min-width: 0;
}

.jp-Mesh-figure dt {
  color: var(--mesh-quiet);
  font-size: var(--jp-ui-font-size0);
}

.jp-Mesh-figure dd {
  font-size: var(--jp-ui-font-size2);
  font-variant-numeric: tabular-nums;
  font-weight: 500;
  line-height: 1.25;
  white-space: nowrap;
}

/* ---- signs */

.jp-Mesh-sign {
  fill: none;
  flex: none;
  height: 12px;
  stroke: currentcolor;
  stroke-linecap: round;
  stroke-linejoin: round;
  stroke-width: 1.9;
  width: 12px;
}

.jp-Mesh-filled {
  fill: currentcolor;
}

.jp-Mesh-is-ready {
  color: var(--mesh-ready);
}

.jp-Mesh-is-busy {
  color: var(--mesh-busy);
}

.jp-Mesh-is-blocked,
.jp-Mesh-is-suspected,
.jp-Mesh-is-cordoned,
.jp-Mesh-is-leaving {
  color: var(--mesh-warn);
}

.jp-Mesh-is-owner,
.jp-Mesh-is-idle,
.jp-Mesh-is-suspended,
.jp-Mesh-is-starting,
.jp-Mesh-is-offline {
  color: var(--mesh-quiet);
}

/* ---- when there is nothing to show */

.jp-Mesh-connecting,
.jp-Mesh-empty {
  color: var(--mesh-quiet);
  padding: 14px 12px;
}

.jp-Mesh-empty > p + p {
  margin-top: 8px;
}

.jp-Mesh-notice {
  background: var(--jp-layout-color2);
  border-left: 3px solid var(--jp-border-color1);
  margin: 2px 12px 10px;
  overflow-wrap: anywhere;
  padding: 8px 10px;
}

.jp-Mesh-notice.jp-Mesh-warning {
  border-left-color: var(--mesh-warn);
}

.jp-Mesh-notice strong {
  align-items: center;
  display: flex;
  font-weight: 600;
  gap: 5px;
}

.jp-Mesh-notice p {
  margin-top: 4px;
}

.jp-Mesh-stale {
  color: var(--mesh-quiet);
}

@media (prefers-reduced-motion: reduce) {
  .jp-Mesh * {
    transition: none !important;
  }
}
`,""]),o.d(t,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./style/table.css"(e,t,o){var s=o("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),r=o.n(s),n=o("./node_modules/css-loader/dist/runtime/api.js"),i=(o.n(n))()(r());i.push([e.id,`/* Filter box and table of nodes. */

/* ---- filter */

.jp-Mesh-filter {
  padding: 10px 12px 8px;
}

.jp-Mesh-filter input {
  background: var(--jp-input-background);
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
  box-sizing: border-box;
  color: var(--jp-ui-font-color0);
  font: inherit;
  height: 28px;
  padding: 0 8px;
  width: 100%;
}

.jp-Mesh-filter input::placeholder {
  color: var(--mesh-quiet);
  opacity: 1;
}

.jp-Mesh-found {
  color: var(--mesh-quiet);
  display: block;
  font-size: var(--jp-ui-font-size0);
  margin-top: 4px;
}

.jp-Mesh :is(input, button, .jp-Mesh-scroll):focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -1px;
}

/* ---- table */

.jp-Mesh-scroll {
  flex: 1 1 0;
  min-height: 0;
  overflow: hidden auto;
}

.jp-Mesh-table {
  border-collapse: collapse;
  table-layout: fixed;
  width: 100%;
}

.jp-Mesh-table thead th {
  background: var(--jp-layout-color1);
  box-shadow: inset 0 -1px var(--mesh-line);
  padding: 0;
  position: sticky;
  text-align: left;
  top: 0;
  z-index: 1;
}

.jp-Mesh-table thead button {
  background: none;
  border: 0;
  color: var(--mesh-quiet);
  cursor: pointer;
  font: inherit;
  font-size: var(--jp-ui-font-size0);
  font-weight: 600;
  padding: 4px 0;
  text-align: left;
  width: 100%;
}

.jp-Mesh-table thead th:first-child button {
  padding-left: 12px;
}

.jp-Mesh-table thead button:hover {
  color: var(--jp-ui-font-color0);
}

.jp-Mesh-arrow {
  display: inline-block;
}

.jp-Mesh-col-load {
  width: 78px;
}

.jp-Mesh-col-tasks {
  width: 54px;
}

.jp-Mesh-table thead .jp-Mesh-col-tasks button,
.jp-Mesh-tasks {
  padding-right: 12px;
  text-align: right;
}

.jp-Mesh-row > * {
  border-bottom: 1px solid var(--jp-border-color3);
  box-sizing: border-box;
  font-weight: 400;
  height: 62px; /* ROW_HEIGHT in nodes.tsx */
  line-height: 17px;
  padding: 4px 0 0;
  vertical-align: top;
}

.jp-Mesh-row:hover {
  background: var(--jp-layout-color2);
}

.jp-Mesh-row > th {
  padding-left: 12px;
  padding-right: 8px;
  text-align: left;
}

.jp-Mesh-name,
.jp-Mesh-more {
  display: block;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.jp-Mesh-name {
  color: var(--jp-ui-font-color0);
  font-weight: 600;
}

.jp-Mesh-state {
  align-items: center;
  display: flex;
  gap: 4px;
  white-space: nowrap;
}

/* The third line reaches under the other two columns, whose cells have two lines at most. */
.jp-Mesh-more {
  color: var(--mesh-quiet);
  font-size: var(--jp-ui-font-size0);
  margin-right: -124px;
}

.jp-Mesh-table .jp-Mesh-space {
  border: 0;
  padding: 0;
}

.jp-Mesh-away .jp-Mesh-name {
  color: var(--mesh-quiet);
}

.jp-Mesh-row > .jp-Mesh-tasks {
  font-variant-numeric: tabular-nums;
  padding-right: 12px;
}

.jp-Mesh-load {
  align-items: center;
  display: flex;
  font-variant-numeric: tabular-nums;
  gap: 6px;
  white-space: nowrap;
}

.jp-Mesh-bar {
  background: var(--jp-layout-color3);
  border-radius: 3px;
  flex: none;
  height: 6px;
  overflow: hidden;
  width: 32px;
}

.jp-Mesh-bar > span {
  background: var(--mesh-busy);
  display: block;
  height: 100%;
  transform-origin: left;
  transition: transform 250ms ease;
}

.jp-Mesh-GPU > span {
  background: var(--jp-accent-color1);
}

.jp-Mesh-bar.jp-Mesh-full > span {
  background: var(--mesh-warn);
}

.jp-Mesh-unknown {
  color: var(--mesh-quiet);
}
`,""]),o.d(t,{},{A:i})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var o="",s=void 0!==t[5];return t[4]&&(o+="@supports (".concat(t[4],") {")),t[2]&&(o+="@media ".concat(t[2]," {")),s&&(o+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),o+=e(t),s&&(o+="}"),t[2]&&(o+="}"),t[4]&&(o+="}"),o}).join("")},t.i=function(e,o,s,r,n){"string"==typeof e&&(e=[[null,e,void 0]]);var i={};if(s)for(var a=0;a<this.length;a++){var l=this[a][0];null!=l&&(i[l]=!0)}for(var p=0;p<e.length;p++){var d=[].concat(e[p]);s&&i[d[0]]||(void 0!==n&&(void 0===d[5]||(d[1]="@layer".concat(d[5].length>0?" ".concat(d[5]):""," {").concat(d[1],"}")),d[5]=n),o&&(d[2]&&(d[1]="@media ".concat(d[2]," {").concat(d[1],"}")),d[2]=o),r&&(d[4]?(d[1]="@supports (".concat(d[4],") {").concat(d[1],"}"),d[4]=r):d[4]="".concat(r)),t.push(d))}},t}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./style/index.css"(e,t,o){o.r(t);var s=o("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),r=o.n(s),n=o("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),i=o.n(n),a=o("./node_modules/style-loader/dist/runtime/insertBySelector.js"),l=o.n(a),p=o("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),d=o.n(p),c=o("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),h=o.n(c),u=o("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),f=o.n(u),m=o("./node_modules/css-loader/dist/cjs.js!./style/index.css"),j={};j.styleTagTransform=f(),j.setAttributes=d(),j.insert=l().bind(null,"head"),j.domAPI=i(),j.insertStyleElement=h(),r()(m.A,j);let g=m.A&&m.A.locals?m.A.locals:void 0;o.d(t,{},{default:g})},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function o(e){for(var o=-1,s=0;s<t.length;s++)if(t[s].identifier===e){o=s;break}return o}function s(e,s){for(var r={},n=[],i=0;i<e.length;i++){var a=e[i],l=s.base?a[0]+s.base:a[0],p=r[l]||0,d="".concat(l," ").concat(p);r[l]=p+1;var c=o(d),h={css:a[1],media:a[2],sourceMap:a[3],supports:a[4],layer:a[5]};if(-1!==c)t[c].references++,t[c].updater(h);else{var u=function(e,t){var o=t.domAPI(t);return o.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&o.update(e=t):o.remove()}}(h,s);s.byIndex=i,t.splice(i,0,{identifier:d,updater:u,references:1})}n.push(d)}return n}e.exports=function(e,r){var n=s(e=e||[],r=r||{});return function(e){e=e||[];for(var i=0;i<n.length;i++){var a=o(n[i]);t[a].references--}for(var l=s(e,r),p=0;p<n.length;p++){var d=o(n[p]);0===t[d].references&&(t[d].updater(),t.splice(d,1))}n=l}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,o){var s=function(e){if(void 0===t[e]){var o=document.querySelector(e);if(window.HTMLIFrameElement&&o instanceof window.HTMLIFrameElement)try{o=o.contentDocument.head}catch(e){o=null}t[e]=o}return t[e]}(e);if(!s)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");s.appendChild(o)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,o){e.exports=function(e){var t=o.nc;t&&e.setAttribute("nonce",t)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(o){var s,r,n;s="",o.supports&&(s+="@supports (".concat(o.supports,") {")),o.media&&(s+="@media ".concat(o.media," {")),(r=void 0!==o.layer)&&(s+="@layer".concat(o.layer.length>0?" ".concat(o.layer):""," {")),s+=o.css,r&&(s+="}"),o.media&&(s+="}"),o.supports&&(s+="}"),(n=o.sourceMap)&&"u">typeof btoa&&(s+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),e.styleTagTransform(s,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}}}]);